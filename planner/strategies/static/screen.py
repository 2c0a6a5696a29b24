"""Seconds and memory of every layout of a space by the closed form, evaluated as arrays over layouts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs.columns import Columns, recomputed
from planner.costs.compute.machine import Machine, machine_of
from planner.costs.memory.allowed import accounting_on, allowed_bytes
from planner.costs.memory.footprint import peak, probability
from planner.costs.step.step import StepSeconds, step_seconds
from planner.errors import InputError
from planner.plan.model import Layout
from planner.specs.accounting import Accounting
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.job import Limits
from planner.specs.parallelism import Parallelism
from planner.strategies.static.layouts import (
    BY_RANGES,
    RECOMPUTE,
    Trained,
    columns_for,
    layout_of,
)
from planner.strategies.static.space import Space
from planner.units import GIB

Floats = NDArray[np.float64]
Places = NDArray[np.int64]  # indices of layouts of a space
LAYOUTS_PER_BLOCK = 2048  # layouts whose memory is evaluated at once


@dataclass(frozen=True, slots=True)
class Problem:
    """One job's module on ranks of one kind."""

    trained: Trained
    machine: Machine
    accounting: Accounting
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
class Screened:
    """Results by layout, (layouts,) each; nan where memory was not evaluated."""

    seconds: Floats  # of a step
    taken: Floats  # bytes on the fullest rank
    chance: Floats  # of running out of memory

    def fits(self, problem: Problem) -> NDArray[np.bool_]:
        """Whether each layout is known to fit."""
        return np.asarray(self.taken <= problem.allowed)

    @property
    def looked(self) -> NDArray[np.bool_]:
        """Whether the memory of each layout was evaluated."""
        return ~np.isnan(self.taken)


def problem_of(inputs: Inputs) -> Problem:
    """The problem of a job's first batch."""
    sizes = tuple(inputs.batches[0].items.values())
    trained = Trained(inputs.spec, inputs.cluster.size, sizes, fixed_of(inputs))
    kind, device = inputs.cluster.ranks[0].kind, inputs.device
    accounting = accounting_on(device, inputs.accounting)
    machine = machine_of(inputs.cluster, device, inputs.rates.get(kind), inputs.timing, accounting)
    return Problem(trained, machine, accounting, inputs.job.limits)


def fixed_of(inputs: Inputs) -> Parallelism:
    """All fields that the job fixes of its module's layout: in `fix.layouts`, or only in `layout`.

    Raises InputError for an unknown module, or fields that exclude each other.
    """
    for name in inputs.job.fix.layouts:
        if name not in inputs.model.modules:
            where = f"{inputs.sources['job']} (fix.layouts)"
            fix = f"name one of {', '.join(inputs.model.modules)}"
            raise InputError(f"the model has no module `{name}`", where=where, fix=fix)
    try:
        return inputs.said
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=f"{inputs.sources['job']} (layout)", fix=fix) from error


def settled(inputs: Inputs) -> Inputs:
    """The job with all fields that it fixes under `fix.layouts`, where its plan keeps them."""
    fix, fixed = inputs.job.fix, fixed_of(inputs)
    if fixed == Parallelism():
        return inputs
    layouts = {**fix.layouts, inputs.module: fixed}
    return replace(inputs, job=changed(inputs.job, fix=changed(fix, layouts=layouts)))


def screen(problem: Problem, found: Space) -> Screened:
    """Seconds and memory of every layout of a space."""
    screened = timed(problem, found)
    look(problem, found, screened, np.arange(len(screened.seconds)))
    return screened


def timed(problem: Problem, found: Space) -> Screened:
    """Seconds of every layout, rounded to nine digits, so that ties are ties on every machine; memory, which takes
    longer, is left for later.
    """
    count = len(found["tp"])
    screened = Screened(np.zeros(count), np.full(count, np.nan), np.full(count, np.nan))
    for places, at in alike(problem.trained, found, np.arange(count)):
        screened.seconds[places] = seconds_of(problem, at)
    digits = 9 - ceil(log10(screened.seconds.min())) if count else 0
    return replace(screened, seconds=np.round(screened.seconds, digits))


def seconds_of(problem: Problem, at: Columns) -> Floats:
    """Seconds of a step, (layouts,); for unequal sequences at least those of the longest alone on one replica."""
    trained = problem.trained
    seconds = step_seconds(trained.module, at, problem.machine).seconds
    if trained.equal:
        return np.asarray(seconds)
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    return np.asarray(np.maximum(seconds, step_seconds(trained.module, longest, problem.machine).seconds))


def look(problem: Problem, found: Space, screened: Screened, places: Places) -> None:
    """Evaluate the memory of these layouts; where the job limits tokens instead, 0 or infinity."""
    most = problem.limits.tokens_per_rank
    for some, at in alike(problem.trained, found, places):
        if most is not None:
            tokens = at.micro_batch * max(problem.trained.sizes) / (at.tp * at.cp)
            screened.taken[some] = np.where(tokens > most, np.inf, 0.0)
            screened.chance[some] = tokens > most
            continue
        fullest = peak(problem.trained.module, held(at, problem.trained), problem.accounting)
        screened.taken[some] = fullest.total
        screened.chance[some] = probability(fullest.total, problem.device_bytes, problem.accounting.spread)


def first_fitting(problem: Problem, found: Space, screened: Screened, order: Places, count: int) -> Places:
    """The first layouts of an order that fit into memory, at most so many; evaluates no more than needed."""
    kept: list[int] = []
    for start in range(0, len(order), LAYOUTS_PER_BLOCK):
        block = order[start : start + LAYOUTS_PER_BLOCK]
        look(problem, found, screened, block[~screened.looked[block]])
        kept += block[screened.fits(problem)[block]].tolist()
        if len(kept) >= count:
            break
    return np.array(kept[:count], dtype=np.int64)


def alike(trained: Trained, found: Space, places: Places) -> Iterator[tuple[Places, Columns]]:
    """These layouts in batches that differ only in numbers, each as one set of columns."""
    selective = found["recompute"][places] == RECOMPUTE.index("selective")
    for which in (False, True):
        some = places[selective == which]
        if len(some):
            yield some, columns_at(trained, {name: column[some] for name, column in found.items()}, which)


def columns_at(trained: Trained, numbers: Space, selective: bool) -> Columns:
    """Many layouts as one Columns; they agree on what is recomputed in layers that are not recomputed in full."""
    first = layout_of(trained, {name: int(each[0]) for name, each in numbers.items()})
    some = replace(columns_for(first, trained), schedule=trained.said.schedule or "1f1b")
    full = (numbers["recompute"] == RECOMPUTE.index("full")).astype(np.float64)
    full = np.where(numbers["recompute"] == BY_RANGES, some.full, full)
    named: dict[str, Any] = {name: each.astype(np.float64) for name, each in numbers.items() if name != "recompute"}
    return replace(some, full=full, parts=recomputed("selective" if selective else "none")[1], **named)


def held(at: Columns, trained: Trained) -> Columns:
    """The same with micro-batches of the longest sequences, which memory has to hold."""
    return at if trained.equal else replace(at, seq=float(max(trained.sizes)), batch=float(len(trained.sizes)))


def parts_of(problem: Problem, layout: Layout) -> StepSeconds:
    """Seconds of a step by part, from the closed form."""
    return step_seconds(problem.trained.module, columns_for(layout, problem.trained), problem.machine)
