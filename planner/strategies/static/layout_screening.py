"""Seconds and memory of every layout of a space by the closed form, evaluated as arrays over layouts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns, MachineModel, machine_of, recompute_columns
from planner.costs.memory import allowed_bytes, device_accounting, fullest_stage, oom_chance
from planner.costs.step import StepSeconds, static_step_seconds
from planner.errors import InputError
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.inputs import Inputs
from planner.specs.job import Limits
from planner.specs.parallelism import Parallelism
from planner.strategies.static.layout_fields import (
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    TrainingSetup,
    columns_for,
    layout_of,
)
from planner.strategies.static.layout_space import LayoutSpace
from planner.units import GIB

Floats = NDArray[np.float64]
LayoutIndices = NDArray[np.int64]  # indices of layouts of a space
LAYOUTS_PER_BLOCK = 2048  # layouts whose memory is evaluated at once


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """One job's module on ranks of one kind."""

    trained: TrainingSetup
    machine: MachineModel
    accounting: MemoryCoefficients
    limits: Limits

    @property
    def device_bytes(self) -> float:
        """Bytes of a device."""
        return self.machine.device.memory_gib * GIB

    @property
    def allowed(self) -> float:
        """Bytes that a rank may hold."""
        return allowed_bytes(self.machine.device, self.limits, self.accounting)


@dataclass(frozen=True, slots=True)
class ScreenedLayouts:
    """Results by layout, (layouts,) each; nan where memory was not evaluated."""

    seconds: Floats  # of a step
    bytes_needed: Floats  # bytes on the fullest rank
    oom_chance: Floats  # of running out of memory

    def fits(self, problem: LayoutProblem) -> NDArray[np.bool_]:
        """Whether each layout is known to fit."""
        return np.asarray(self.bytes_needed <= problem.allowed)

    @property
    def memory_known(self) -> NDArray[np.bool_]:
        """Whether the memory of each layout was evaluated."""
        return ~np.isnan(self.bytes_needed)


def layout_problem(inputs: Inputs) -> LayoutProblem:
    """The problem of a job's first batch."""
    sizes = tuple(inputs.batches[0].items.values())
    trained = TrainingSetup(inputs.spec, inputs.cluster.size, sizes, fixed_fields(inputs))
    kind, device = inputs.cluster.ranks[0].kind, inputs.device
    accounting = device_accounting(device, inputs.accounting)
    machine = machine_of(inputs.cluster, device, inputs.rates.get(kind), inputs.timing, accounting)
    return LayoutProblem(trained, machine, accounting, inputs.job.limits)


def fixed_fields(inputs: Inputs) -> Parallelism:
    """All fields that the job fixes of its module's layout: in `fix.layouts`, or only in `layout`.

    Raises InputError for an unknown module, or fields that exclude each other.
    """
    for name in inputs.job.fix.layouts:
        if name not in inputs.model.modules:
            where = f"{inputs.sources['job']} (fix.layouts)"
            fix = f"name one of {', '.join(inputs.model.modules)}"
            raise InputError(f"the model has no module `{name}`", where=where, fix=fix)
    try:
        return inputs.fixed_parallelism
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=f"{inputs.sources['job']} (layout)", fix=fix) from error


def with_fixed_fields(inputs: Inputs) -> Inputs:
    """The job with all fields that it fixes under `fix.layouts`, where its plan keeps them."""
    fix, fixed = inputs.job.fix, fixed_fields(inputs)
    if fixed == Parallelism():
        return inputs
    layouts = {**fix.layouts, inputs.module: fixed}
    return replace(inputs, job=with_fields(inputs.job, fix=with_fields(fix, layouts=layouts)))


def screen(problem: LayoutProblem, found: LayoutSpace) -> ScreenedLayouts:
    """Seconds and memory of every layout of a space."""
    screened = screen_seconds(problem, found)
    screen_memory(problem, found, screened, np.arange(len(screened.seconds)))
    return screened


def screen_seconds(problem: LayoutProblem, found: LayoutSpace) -> ScreenedLayouts:
    """Seconds of every layout, rounded to nine digits, so that ties are ties on every machine; memory, which takes
    longer, is left for later.
    """
    count = len(found["tp"])
    screened = ScreenedLayouts(np.zeros(count), np.full(count, np.nan), np.full(count, np.nan))
    for places, at in column_batches(problem.trained, found, np.arange(count)):
        screened.seconds[places] = seconds_of(problem, at)
    digits = 9 - ceil(log10(screened.seconds.min())) if count else 0
    return replace(screened, seconds=np.round(screened.seconds, digits))


def seconds_of(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Seconds of a step, (layouts,); for unequal sequences at least those of the longest alone on one replica."""
    trained = problem.trained
    seconds = static_step_seconds(trained.module, at, problem.machine).seconds
    if trained.equal_lengths:
        return np.asarray(seconds)
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    return np.asarray(np.maximum(seconds, static_step_seconds(trained.module, longest, problem.machine).seconds))


def screen_memory(problem: LayoutProblem, found: LayoutSpace, screened: ScreenedLayouts, places: LayoutIndices) -> None:
    """Evaluate the memory of these layouts; where the job limits tokens instead, 0 or infinity."""
    most = problem.limits.tokens_per_rank
    for some, at in column_batches(problem.trained, found, places):
        if most is not None:
            tokens = at.micro_batch * max(problem.trained.sizes) / (at.tp * at.cp)
            screened.bytes_needed[some] = np.where(tokens > most, np.inf, 0.0)
            screened.oom_chance[some] = tokens > most
            continue
        fullest = fullest_stage(problem.trained.module, longest_columns(at, problem.trained), problem.accounting)
        screened.bytes_needed[some] = fullest.total
        screened.oom_chance[some] = oom_chance(fullest.total, problem.device_bytes, problem.accounting.spread)


def first_fitting(
    problem: LayoutProblem, found: LayoutSpace, screened: ScreenedLayouts, order: LayoutIndices, count: int
) -> LayoutIndices:
    """The first layouts of an order that fit into memory, up to the number wanted; evaluates no more than needed."""
    kept: list[int] = []
    for start in range(0, len(order), LAYOUTS_PER_BLOCK):
        block = order[start : start + LAYOUTS_PER_BLOCK]
        screen_memory(problem, found, screened, block[~screened.memory_known[block]])
        kept += block[screened.fits(problem)[block]].tolist()
        if len(kept) >= count:
            break
    return np.array(kept[:count], dtype=np.int64)


def column_batches(
    trained: TrainingSetup, found: LayoutSpace, places: LayoutIndices
) -> Iterator[tuple[LayoutIndices, LayoutColumns]]:
    """These layouts in batches that differ only in numbers, each as one set of columns."""
    selective = found["recompute"][places] == RECOMPUTE.index("selective")
    for which in (False, True):
        some = places[selective == which]
        if len(some):
            yield some, columns_at(trained, {name: column[some] for name, column in found.items()}, which)


def columns_at(trained: TrainingSetup, numbers: LayoutSpace, selective: bool) -> LayoutColumns:
    """Many layouts as one Columns; they agree on what is recomputed in layers that are not recomputed in full."""
    first = layout_of(trained, {name: int(each[0]) for name, each in numbers.items()})
    some = replace(columns_for(first, trained), schedule=trained.fixed.schedule or "1f1b")
    full = (numbers["recompute"] == RECOMPUTE.index("full")).astype(np.float64)
    full = np.where(numbers["recompute"] == RECOMPUTE_BY_RANGES, some.full_recompute, full)
    named: dict[str, Any] = {name: each.astype(np.float64) for name, each in numbers.items() if name != "recompute"}
    return replace(
        some, full_recompute=full, recomputed_parts=recompute_columns("selective" if selective else "none")[1], **named
    )


def longest_columns(at: LayoutColumns, trained: TrainingSetup) -> LayoutColumns:
    """The same with micro-batches of the longest sequences, which memory has to hold."""
    return at if trained.equal_lengths else replace(at, seq=float(max(trained.sizes)), batch=float(len(trained.sizes)))


def closed_form_parts(problem: LayoutProblem, layout: Layout) -> StepSeconds:
    """Seconds of a step by part, from the closed form."""
    return static_step_seconds(problem.trained.module, columns_for(layout, problem.trained), problem.machine)
