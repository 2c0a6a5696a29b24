"""What every layout of a space takes and needs by the closed form: all that differ in numbers only priced as arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs.static.footprint import Footprint, footprint, peak, probability
from planner.costs.static.layouts import SCHEMES, machine_of, recomputed
from planner.costs.static.machine import Machine
from planner.costs.static.setup import Setup
from planner.costs.static.step import StepSeconds, step_seconds
from planner.errors import InputError
from planner.specs.accounting import Accounting
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.job import ZERO_BUBBLE, StaticLayout
from planner.strategies.static.choice import RECOMPUTE, Choice, Trained, setup_for
from planner.strategies.static.space import Space
from planner.units import GIB

Floats = NDArray[np.float64]
Places = NDArray[np.int64]  # among the layouts of a space
BLOCK = 2048  # layouts that are looked at together
RISK = 0.10  # of running out of memory, at most


@dataclass(frozen=True, slots=True)
class Problem:
    """One job's module on one kind of rank."""

    trained: Trained
    machine: Machine
    accounting: Accounting
    margin: float  # of the device's memory, never planned on
    tokens_per_rank: int | None = None  # the job's own limit, in place of the memory that was counted

    @property
    def device_bytes(self) -> float:
        return self.machine.device.memory_gib * GIB

    @property
    def allowed(self) -> float:
        """Bytes that a plan may use of a device."""
        return self.device_bytes * (1.0 - self.margin)


@dataclass(frozen=True, slots=True)
class Screened:
    """Of each layout; nan where nobody has looked yet."""

    seconds: Floats  # of a step
    taken: Floats  # bytes on the fullest rank
    chance: Floats  # of running out of memory

    def fits(self, problem: Problem) -> NDArray[np.bool_]:
        return np.asarray((self.chance <= RISK) & (self.taken <= problem.allowed))

    @property
    def looked(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.taken)


def problem_of(inputs: Inputs) -> Problem:
    """Of the only batch, or the first."""
    fixed, spec = fixed_of(inputs), inputs.spec
    schedule = SCHEMES.get(fixed.schedule or "")
    sizes = tuple(inputs.batches[0].items.values())
    trained = Trained(spec, inputs.cluster.size, inputs.job.layout.dtype, sizes, schedule)
    kind = inputs.cluster.ranks[0].kind
    machine = machine_of(inputs.cluster, inputs.device, inputs.rates.get(kind), inputs.timing)
    accounting = inputs.accounting
    if inputs.device.kind == "cpu":
        accounting = changed(accounting, context_gib=0.0, workspace_gib=0.0)  # these are a GPU's
    limits = inputs.job.limits
    return Problem(trained, machine, accounting, limits.memory_margin, limits.tokens_per_rank)


def fixed_of(inputs: Inputs) -> StaticLayout:
    """All that the job says of its module's layout: `fix.layouts`, and what only `layout` says of ZeRO and recompute.

    Raises InputError when it speaks of another module, or asks for what cannot be together.
    """
    for name in inputs.job.fix.layouts:
        if name not in inputs.model.modules:
            where = f"{inputs.sources['job']} (fix.layouts)"
            fix = f"name one of {', '.join(inputs.model.modules)}"
            raise InputError(f"the model has no module `{name}`", where=where, fix=fix)
    fixed, wish = inputs.job.fix.layouts.get(inputs.module, StaticLayout()), inputs.job.layout
    recompute = fixed.recompute or wish.recompute
    if fixed.schedule in ZERO_BUBBLE and recompute not in (None, "none"):
        message = f"{fixed.schedule} keeps activations until weights' gradients are made, and recompute is {recompute}"
        raise InputError(message, where=f"{inputs.sources['job']} (layout)", fix="recompute: none, or schedule: 1f1b")
    return changed(fixed, zero=wish.zero if fixed.zero is None else fixed.zero, recompute=recompute)


def settled(inputs: Inputs) -> Inputs:
    """The job with all that it says of its module's layout under `fix.layouts`, where its plan keeps it."""
    fix, fixed = inputs.job.fix, fixed_of(inputs)
    if fixed == StaticLayout():
        return inputs
    layouts = {**fix.layouts, inputs.module: fixed}
    return replace(inputs, job=changed(inputs.job, fix=changed(fix, layouts=layouts)))


def screen(problem: Problem, found: Space) -> Screened:
    """Seconds and bytes of every layout of a space."""
    screened = timed(problem, found)
    look(problem, found, screened, np.arange(len(screened.seconds)))
    return screened


def timed(problem: Problem, found: Space) -> Screened:
    """Seconds of every layout, to nine digits, so that ties are ties on every machine; memory, which takes longer to
    tell, of none.
    """
    count = len(found["tp"])
    screened = Screened(np.zeros(count), np.full(count, np.nan), np.full(count, np.nan))
    for places, setup in alike(problem.trained, found, np.arange(count)):
        screened.seconds[places] = seconds_of(problem, setup)
    digits = 9 - ceil(log10(screened.seconds.min())) if count else 0
    return replace(screened, seconds=np.round(screened.seconds, digits))


def seconds_of(problem: Problem, setup: Setup) -> Floats:
    """Of a step of equal sequences; of unequal ones no less than what the longest takes alone, on one replica."""
    trained = problem.trained
    seconds = step_seconds(trained.module, setup, problem.machine).seconds
    if trained.equal:
        return np.asarray(seconds)
    longest = replace(setup, seq=float(max(trained.sizes)), batch=setup.dp, micro_batch=1.0)
    return np.asarray(np.maximum(seconds, step_seconds(trained.module, longest, problem.machine).seconds))


def look(problem: Problem, found: Space, screened: Screened, places: Places) -> None:
    """Fill in the memory of these."""
    for some, setup in alike(problem.trained, found, places):
        if problem.tokens_per_rank is not None:
            tokens = setup.micro_batch * max(problem.trained.sizes) / (setup.tp * setup.cp)
            screened.taken[some], screened.chance[some] = 0.0, tokens > problem.tokens_per_rank
            continue
        fullest = peak(problem.trained.module, held(setup, problem.trained), problem.accounting)
        screened.taken[some] = fullest.total
        screened.chance[some] = probability(fullest, problem.device_bytes, problem.accounting.spread)


def first_fitting(problem: Problem, found: Space, screened: Screened, order: Places, count: int) -> Places:
    """The first of an order that fit into memory, at most so many: no more are looked at than it takes."""
    kept: list[int] = []
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        look(problem, found, screened, block[~screened.looked[block]])
        kept += block[screened.fits(problem)[block]].tolist()
        if len(kept) >= count:
            break
    return np.array(kept[:count], dtype=np.int64)


def alike(trained: Trained, found: Space, places: Places) -> Iterator[tuple[Places, Setup]]:
    """Those of these layouts that differ in numbers only, as one setup each."""
    selective = found["recompute"][places] == RECOMPUTE.index("selective")
    for which in (False, True):
        some = places[selective == which]
        if len(some):
            yield some, setup_of_columns(trained, {name: column[some] for name, column in found.items()}, which)


def setup_of_columns(trained: Trained, columns: Space, selective: bool) -> Setup:
    """Many layouts as one setup; they agree in what is made again of a layer that is not made again whole."""
    numbers: dict[str, Any] = {name: each.astype(np.float64) for name, each in columns.items() if name != "recompute"}
    some = setup_for(Choice(recompute=RECOMPUTE.index("selective") if selective else 0), trained)
    full = (columns["recompute"] == RECOMPUTE.index("full")).astype(np.float64)
    return replace(some, full=full, again=recomputed("selective" if selective else "none")[1], **numbers)


def held(setup: Setup, trained: Trained) -> Setup:
    """The same with the longest sequences, of which memory has to hold a micro-batch."""
    return setup if trained.equal else replace(setup, seq=float(max(trained.sizes)), batch=float(len(trained.sizes)))


def parts_of(problem: Problem, choice: Choice) -> StepSeconds:
    """Where the closed form has a step's seconds go."""
    return step_seconds(problem.trained.module, setup_for(choice, problem.trained), problem.machine)


def footprint_of(problem: Problem, choice: Choice, stage: int) -> Footprint:
    """Bytes on one rank of a stage."""
    setup = held(setup_for(choice, problem.trained), problem.trained)
    return footprint(problem.trained.module, setup, problem.accounting, stage)


def chance_of(problem: Problem, taken: Footprint) -> float:
    """Of running out of memory with so much."""
    return float(probability(taken, problem.device_bytes, problem.accounting.spread))
