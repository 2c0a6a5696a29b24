"""Fits device rates to tables of kernels or recordings, framework coefficients to step times or a run of one's own.

Tables of kernels and collectives give a device's rates (`device_rates_fit`, with one module for each kind of kernel);
published step times give the coefficients of frameworks and the sustained rates of devices (`published_fit`).
"""

from planner.calibrate.after_one_run import median_after_one_run
from planner.calibrate.coefficients import GENERIC, CoefficientName, prior_of
from planner.calibrate.device_rates_fit import CalibratedDevice, calibrate_tables
from planner.calibrate.fit_files import PublishedFit, sustained_rates, write_fit
from planner.calibrate.framework_fit import FittedCoefficients
from planner.calibrate.left_out import with_left_out_seconds
from planner.calibrate.own_run import CalibratedRun, calibrated_to_run, known_runs, write_own_runs
from planner.calibrate.published_fit import calibrate_published, errors_by_source
from planner.calibrate.trace_fit import calibrate_traces
