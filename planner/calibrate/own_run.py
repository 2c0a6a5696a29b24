"""Coefficients after a run of a plan that its user measured."""

import logging
from dataclasses import dataclass
from math import log
from pathlib import Path

from planner import files
from planner.calibrate.fit_files import four_digits, plain_numbers, replace_sustained_rates
from planner.calibrate.one_run import (
    STEP,
    WIDTHS,
    Shifts,
    shifted_rates,
    shifted_timing,
    shifts_of_run,
    standard_deviations,
)
from planner.costs.compute import complete_rates
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import score, throughput
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.framework.software import Software
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import Profile
from planner.units import duration

LOG = logging.getLogger(__name__)
CPU = "cpu"  # whose peak is a guess where nothing is measured
FAR_OFF = 3.0  # standard deviations: one run of 370 whose coefficients are as uncertain as assumed
LEAST_SLOPE = 1e-6  # of log seconds by a log coefficient that they depend on


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A measured run of a plan: seconds of its first step as it was predicted, as it was measured, and as the
    coefficients predict it that are likeliest now; and how the logarithms of these changed.
    """

    predicted: float
    measured: float
    after: float
    shifts: dict[str, float]


def calibrated_to_run(plan: Plan, measured: float) -> OwnRun:
    """The plan's prices after a run of so many seconds a step. Raises InputError where none of its coefficients
    matters to the plan, and for a step that its devices cannot do.
    """
    require_below_peak(plan, measured)
    predicted, slopes = step_seconds(plan), dict[str, float]()
    for name in WIDTHS:
        slope = log(step_seconds(with_shifts(plan, {name: STEP})) / predicted) / STEP
        if abs(slope) > LEAST_SLOPE:
            slopes[name] = slope
    if not slopes:
        what = "its prices were measured, so that no coefficient changes them"
        raise InputError(what, where="uses.prices.modules", fix="measure again: planner profile")
    log_error = log(predicted / measured)
    if standard_deviations(slopes, log_error) > FAR_OFF:
        LOG.warning(
            "a step of %s is far from the %s that are predicted: is it the time of one step, of this plan?",
            duration(measured),
            duration(predicted),
        )
    shifts = shifts_of_run(slopes, log_error)
    return OwnRun(predicted, measured, step_seconds(with_shifts(plan, shifts)), shifts)


def require_below_peak(plan: Plan, measured: float) -> None:
    """Raises InputError for a step with more FLOP/s than the peak of its devices, which is known but of CPUs."""
    mfu = throughput(plan, measured).mfu
    if mfu > 1.0 and all(device.kind != CPU for device in plan.uses.devices.values()):
        what = f"a step of this plan in {duration(measured)} takes {mfu:.3g} times the peak of its devices"
        raise InputError(what, where="--measured", fix="give the time of a whole step: of all its micro-batches")


def with_shifts(plan: Plan, shifts: Shifts) -> Plan:
    """The plan with the logarithms of its coefficients changed."""
    prices = plan.uses.prices
    timing = plain_numbers(shifted_timing(prices.timing, shifts))
    rates = {kind: plain_rates(shifted_rates(each, shifts)) for kind, each in prices.rates.items()}
    return with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(prices, timing=timing, rates=rates)))


def plain_rates(rates: DeviceRates) -> DeviceRates:
    """The rates with what is sustained of them as Python's numbers."""
    return with_fields(rates, sustained={name: float(value) for name, value in rates.sustained.items()})


def step_seconds(plan: Plan) -> float:
    """Seconds of the plan's first step by its prices."""
    return float(score(plan).step_seconds)


def write_own_run(run: OwnRun, plan: Plan, folder: Path, date: str) -> list[Path]:
    """Write `software/NAME.yaml` of the plan's framework and `devices/NAME.yaml` of its shipped devices, as they are
    after the run; returns their paths. Raises InputError.
    """
    software, _ = library.read_named(plan.uses.software.name, Software)
    note = f"{software.provenance.note} Then shifted by a run of {plan.name}: {run.measured:.4g} s a step."
    provenance = with_fields(software.provenance, date=date, note=note)
    timing = plain_numbers(shifted_timing(software.timing, run.shifts))
    paths = [folder / "software" / f"{software.name}.yaml"]
    files.write(paths[0], with_fields(software, provenance=provenance, timing=timing))
    for kind in sorted({*plan.uses.prices.rates} & {*library.shipped_names(Profile)}):
        rates = plain_rates(shifted_rates(complete_rates(library.read_named(kind, Profile)[0].rates), run.shifts))
        values = {name: four_digits(value) for name, value in rates.sustained.items()}
        paths.append(folder / "devices" / f"{kind}.yaml")
        files.write_text(paths[-1], replace_sustained_rates(files.read_text(library.find_file(kind, Profile)), values))
    return paths
