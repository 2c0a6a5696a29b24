"""Lower bounds on the seconds of a step, as a table: no packing of these sequences on these ranks can be faster.

For the declared degrees, token cap and kind of sync; never for a simplified model of them.

area      Within a micro-batch that lasts C, each rank works at most C − min β seconds beyond the constants, so over all
          micro-batches N·Σ(C − min β) ≥ Σ_i min_d d·w_d(s_i), and there are at least ⌈Σs/(N·cap)⌉ of them.
streams   How many micro-batches each rank can run, where ranks meet once a step (verify/streams.py).
coupled   While long sequences hold their ranks, the others run out of room for tokens (verify/coupled.py).
exact     The exact program (verify/exact.py), for small problems.
order     What every order of a pipeline's passes has to wait for, in whatever sequence (orders/anyhow.py).
exchange  The same of micro-batches whose gathers and reductions outlast their compute (verify/exchange.py).
longest   One micro-batch holds the sequence that takes longest even on its best degree, and the others cost their
          constants.

busiest_rank  Given who does what: no rank is done before it has worked all its own.

`order` and `busiest_rank` are of every order of the same work; the others of every plan of the job.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from planner.costs.pricing import Pricing
from planner.costs.step.sequences import Sequences
from planner.costs.step.table import make_table
from planner.plan.model import Plan
from planner.plan.task import Task
from planner.simulate import Timeline
from planner.verify.bounded import Bounded
from planner.verify.coupled import coupled_seconds
from planner.verify.exact import prove, small_enough
from planner.verify.exchange import rows_by_exchange, step_by_exchange
from planner.verify.pipelined import order_seconds


class Bound(NamedTuple):
    seconds: float
    by: str


class Bounding(NamedTuple):
    """`applies`: to which steps; `seconds`: that they cannot beat; `proof`: why, for somebody who has never met one.

    `same_work`: of every order of the same work, who does what in which stage being taken as it is; else of every plan.
    """

    applies: Callable[[Bounded], bool]
    seconds: Callable[[Bounded], float]
    proof: str
    same_work: bool = False


def step_bound(plan: Plan, number: int, pricing: Pricing, tasks: Sequence[Task], timeline: Timeline) -> Bound:
    """The best that applies: of those over every plan where the step answers a packing problem, else of the others."""
    step = Bounded(plan, number, pricing, tasks, timeline)
    found: list[Bound] = []
    for by, each in BOUNDS.items():
        if each.same_work == (step.problem is None) and each.applies(step):
            found.append(Bound(each.seconds(step), by))
            if found[-1].seconds >= step.value:  # nothing can be above it
                break
    return max(found, key=lambda bound: bound.seconds)


def same_work(by: str) -> bool:
    """Whether a bound is over the same work alone; of several, joined by `+`, any."""
    return any(BOUNDS[name].same_work for name in by.split("+") if name in BOUNDS)


def lower_bound(problem: Sequences, value: float, effort: int = 2) -> Bound:
    """The best of those over every packing into micro-batches in which all ranks meet; `value`: of a known plan."""
    bounds = (
        Bound(area(problem), "area"),
        Bound(longest(problem), "longest"),
        Bound(coupled_seconds(problem, value, effort), "coupled"),
    )
    return max(bounds, key=lambda bound: bound.seconds)


def area(problem: Sequences) -> float:
    work = make_table(problem).work
    rows = problem.fewest_rows * problem.row_constant
    return rows + work / problem.ranks + problem.step_seconds


def longest(problem: Sequences) -> float:
    alone = float(make_table(problem).seconds.min(axis=1).max())
    rows = problem.fewest_rows * problem.row_constant
    return rows + alone + problem.step_seconds


def exact(problem: Sequences, value: float) -> float:
    """What the exact program proves, where it can be expected to; nothing elsewhere."""
    return prove(problem, value).bound if small_enough(problem, value) else 0.0


def exchange(step: Bounded) -> float:
    """Of gathers and reductions, beside which compute hides."""
    if step.meets_once:
        return step_by_exchange(step.pricing, step.module, step.streams - step.packing.step_seconds)
    behind = rows_by_exchange(step.pricing, step.module, step.packing)
    return lower_bound(behind, step.value, step.effort).seconds if behind else 0.0


def busiest_rank(tasks: Sequence[Task], timeline: Timeline) -> float:
    """Given who does what: no order of it ends before the busiest rank has done its own, beside what shares it."""
    shares = {task.id: task.share for task in tasks}
    busy: dict[int, float] = {}
    for event in timeline.events:
        if event.stream == "compute":
            for rank in event.ranks:
                busy[rank] = busy.get(rank, 0.0) + shares[event.id] * event.seconds
    return max(busy.values(), default=0.0)


def everywhere(step: Bounded) -> bool:
    return True


def once(step: Bounded) -> bool:
    return step.meets_once


def often(step: Bounded) -> bool:
    return not step.meets_once


BOUNDS: dict[str, Bounding] = {
    "area": Bounding(
        often,
        lambda step: area(step.packing),
        "ranks cannot do more than one second of work a second, and the tokens need a number of micro-batches",
    ),
    "longest": Bounding(
        often,
        lambda step: longest(step.packing),
        "some micro-batch holds the sequence that takes longest even on its best degree",
    ),
    "coupled": Bounding(
        often,
        lambda step: step.proven(coupled_seconds, step.effort),
        "while long sequences hold their ranks, the others run out of room for tokens; every place of the "
        "longest ones is enumerated, and the rest flows",
    ),
    "streams": Bounding(
        once,
        lambda step: step.streams,
        "where ranks meet once a step: how many micro-batches each can run in the time, and what these hold",
    ),
    "exact": Bounding(often, lambda step: step.proven(exact), "the exact integer program, solved to its end"),
    "exchange": Bounding(
        everywhere,
        exchange,
        "parameters are gathered and gradients reduced however items are placed, and what is computed "
        "meanwhile hides a part of that at most",
    ),
    "busiest_rank": Bounding(
        everywhere,
        lambda step: busiest_rank(step.tasks, step.timeline),
        "given who does what, no order of the tasks ends before the busiest rank has done its own",
        same_work=True,
    ),
    "order": Bounding(
        lambda step: step.ordered,
        lambda step: order_seconds(step.plan, step.pricing, step.tasks),
        "given who does what in which stage, every order of the passes has to wait for the way through "
        "the stages, for a stage's own work, and for room in its memory, in whatever sequence micro-batches come",
        same_work=True,
    ),
}
