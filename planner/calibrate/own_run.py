"""A run of a plan that its user measured, and coefficients after it and those before."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import described_run, score, throughput
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.framework.own_runs import STEP, UNEXPLAINED, OwnRun, Shifts, after_runs, shifted_timing
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import WIDTHS, plain_numbers
from planner.units import duration, four_digits

LOG = logging.getLogger(__name__)
CPU = "cpu"  # whose peak is a guess where nothing is measured
FAR_OFF = 3.0  # standard deviations: one run of 370 whose coefficients are as uncertain as assumed
LEAST_SLOPE = 1e-6  # of log seconds by a log coefficient that they depend on


@dataclass(frozen=True, slots=True)
class CalibratedRun:
    """A measured run of a plan, and the runs that are known with it; seconds of its first step as it was predicted, and
    as the coefficients predict it that are likeliest after all of them; how the logarithms of these changed.
    """

    run: OwnRun
    predicted: float  # by the plan's own prices
    known: tuple[OwnRun, ...]
    after: float
    shifts: dict[str, float]


def calibrated_to_run(plan: Plan, measured: float, known: Sequence[OwnRun] = ()) -> CalibratedRun:
    """A plan's coefficients after a run of so many seconds a step, the runs that the plan is priced after, and others.
    Raises InputError where no coefficient matters to the plan, and for a step that its devices cannot do.
    """
    require_below_peak(plan, measured)
    before = without_own_runs(plan)
    predicted, slopes = step_seconds(before), dict[str, float]()
    for name in WIDTHS:
        slope = log(step_seconds(with_shifts(before, {name: STEP})) / predicted) / STEP
        if abs(slope) > LEAST_SLOPE:
            slopes[name] = four_digits(slope)
    if not slopes:
        what = "its prices were measured, so that no coefficient changes them"
        raise InputError(what, where="uses.prices.modules", fix="measure again: planner profile")
    ran, tflops = described_run(plan)
    ran_as = ran._asdict() | {"plan": plan.name, "tflops": tflops}
    run = OwnRun(**ran_as, predicted=predicted, measured=measured, slopes=slopes)
    if standard_deviations(run) > FAR_OFF:
        LOG.warning(
            "a step of %s is far from the %s that are predicted: is it the time of one step, of this plan?",
            duration(measured),
            duration(predicted),
        )
    every = in_one_order([*plan.uses.prices.own_runs, *known, run])
    shifts = after_runs(every, ran, tflops).shifts
    after = step_seconds(with_shifts(before, shifts))
    return CalibratedRun(run, step_seconds(plan), every, after, shifts)


def standard_deviations(run: OwnRun) -> float:
    """How many of them a run's error is, before it is known: of its log seconds the variance is gᵀΣg + σ²."""
    variance = sum((WIDTHS[name] * slope) ** 2 for name, slope in run.slopes.items()) + UNEXPLAINED**2
    return abs(run.log_error) / sqrt(variance)


def in_one_order(runs: Sequence[OwnRun]) -> tuple[OwnRun, ...]:
    """Each run once, in an order that does not depend on when it was added."""
    different = [run for at, run in enumerate(runs) if run not in runs[:at]]
    return tuple(sorted(different, key=lambda run: (run.plan, run.ran, run.predicted, run.measured)))


def without_own_runs(plan: Plan) -> Plan:
    """The plan with the coefficients that it would have without the runs that it is priced after."""
    runs = plan.uses.prices.own_runs
    shifts = after_runs(runs, *described_run(plan)).shifts if runs else {}
    return with_shifts(plan, {name: -shift for name, shift in shifts.items()})


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
    return with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(prices, timing=timing)))


def step_seconds(plan: Plan) -> float:
    """Seconds of the plan's first step by its prices."""
    return float(score(plan).step_seconds)


def known_runs(plan: Plan, folder: Path) -> tuple[OwnRun, ...]:
    """The runs that the file of a plan's framework in this folder keeps. Raises InputError."""
    path = software_path(plan, folder)
    return files.read(path, Software).own_runs if path.exists() else ()


def write_own_runs(made: CalibratedRun, plan: Plan, folder: Path) -> list[Path]:
    """Write `software/NAME.yaml` of the plan's framework, as it is there or else as it is shipped, with these runs;
    returns its path. Raises InputError.
    """
    path = software_path(plan, folder)
    software = files.read(path, Software) if path.exists() else library.read_named(plan.uses.software.name, Software)[0]
    files.write(path, with_fields(software, own_runs=made.known))
    return [path]


def software_path(plan: Plan, folder: Path) -> Path:
    """The file of a plan's framework in a folder of one's own. Raises InputError."""
    return folder / "software" / f"{files.plain_name(plan.uses.software.name, 'uses.software.name')}.yaml"
