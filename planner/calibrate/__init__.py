"""Fits device rates to tables of kernels, and framework coefficients to published step times.

Tables of kernels and collectives give a device's rates (`device_rates_fit`, with one module for each kind of kernel);
published step times give the coefficients of frameworks and the sustained rates of devices (`published_fit`).
"""

from planner.calibrate.coefficients import GENERIC, CoefficientName, prior_of
from planner.calibrate.device_rates_fit import CalibratedDevice, calibrate_tables
from planner.calibrate.fit_files import PublishedFit, four_digits, sustained_rates, write_fit
from planner.calibrate.framework_fit import FittedCoefficients
from planner.calibrate.left_out import with_left_out_seconds
from planner.calibrate.published_fit import calibrate_published, errors_by_source

__all__ = [
    "GENERIC",
    "CalibratedDevice",
    "CoefficientName",
    "FittedCoefficients",
    "PublishedFit",
    "calibrate_published",
    "calibrate_tables",
    "errors_by_source",
    "four_digits",
    "prior_of",
    "sustained_rates",
    "with_left_out_seconds",
    "write_fit",
]
