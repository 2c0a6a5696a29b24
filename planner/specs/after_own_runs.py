"""The prices of a job after the runs that its software's file keeps."""

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from planner.specs.framework.after_runs import after_runs, shifted_timing
from planner.specs.framework.own_runs import OwnRun
from planner.specs.framework.timing_coefficients import plain_numbers
from planner.specs.measured_run import MeasuredRun
from planner.specs.parameters import parameter_counts
from planner.specs.plausibility import USUAL_DTYPE
from planner.specs.workload.items import part_lengths

if TYPE_CHECKING:
    from planner.specs.inputs import Inputs


def with_own_runs(inputs: "Inputs", runs: tuple[OwnRun, ...]) -> "Inputs":
    """The inputs with the likeliest coefficients after these runs; as they are without any."""
    if not runs:
        return inputs
    told = after_runs(runs, job_run(inputs), inputs.device.tflops_in_16_bits)
    timing = plain_numbers(shifted_timing(inputs.timing, told.shifts))
    return replace(inputs, timing=timing, software_spread=inputs.software_spread * told.narrowed, own_runs=runs)


def job_run(inputs: "Inputs") -> MeasuredRun:
    """What a job's plan will run, as far as a job says it: no degrees."""
    modules = inputs.model.modules
    name = max(modules, key=lambda each: parameter_counts(modules[each]).total)
    items = [batch.items if name == inputs.module else batch.streams.get(name, {}) for batch in inputs.batches]
    lengths = [length for sizes in items for size in sizes.values() for length in part_lengths(size)]
    return MeasuredRun(
        device=inputs.cluster.ranks[0].kind,
        software=inputs.software.name,
        dtype=inputs.fixed_of(name).dtype or USUAL_DTYPE,
        experts=modules[name].routed_experts is not None,
        zero=1,
        ranks=inputs.cluster.size,
        tp=1,
        pp=1,
        cp=1,
        ep=1,
        seq=max(1, round(fmean(lengths or [1]))),
        billions=parameter_counts(modules[name]).total / 1e9,
    )
