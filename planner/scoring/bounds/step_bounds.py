"""Lower bounds on the seconds of a step, as a table: no packing of these sequences on these ranks can be faster.

They hold for the declared degrees, token capacity and kind of synchronisation, never only for a simplified model.

area      Within a micro-batch that lasts C, each rank works at most C − min β seconds beyond the constants, so over all
          micro-batches N·Σ(C − min β) ≥ Σ_i min_d d·w_d(s_i), and there are at least ⌈Σs/(N·cap)⌉ of them.
streams   How many micro-batches each rank can run, where ranks synchronise once per step (stream_bound.py).
coupled   While long sequences hold their ranks, the others run out of memory for tokens (coupled_bound.py).
exact     The exact integer program (exact_grouping.py), for small problems.
order     What every order of a pipeline's passes has to wait for, in any sequence (orders/any_sequence_bound.py).
exchange  The same for micro-batches whose gathers and reductions outlast their compute (exchange_bounds.py).
tables    Of what embedding tables add to a step, and so added to the others: the slowest rank is no quicker than the
          mean one (costs/tables/table_bound.py).

waves     Of several tasks' towers, how many seconds of ranks their samples take at least, in passes that end within the
          step (wave_bound.py).

busiest_rank  With the assignment given: no rank is done before it has run all its own work.

space         Every static layout of the job's space at once (layouts/bounds/space_bound.py), found with the search
              alone; of `best` every plan of every strategy whose plans the software can launch and that are not all
              static, if that is less. Of several modules all of their layouts, ranks and assignments
              (layouts/bounds/joint_bound.py); where every layout is fixed, all assignments.

`order` and `busiest_rank` bound every order of the same work; the others bound every plan of the job.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import numpy as np

from planner.costs import Cost, Floats, PackingProblem, Pricing, packing_table, step_prices
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.task_table import TaskTable
from planner.scoring.bounds.bounded_step import BoundedStep
from planner.scoring.bounds.coupled_bound import coupled_seconds
from planner.scoring.bounds.exact_grouping import small_enough, solve_grouping
from planner.scoring.bounds.exchange_bounds import exchange_problem, step_exchange_seconds
from planner.scoring.bounds.pipeline_passes import order_bound_seconds
from planner.scoring.bounds.wave_bound import wave_seconds
from planner.scoring.table_score import least_table_seconds
from planner.simulate import Timeline

SPACE = "space"
WAVES = "waves"
ROUNDING = 1e-12  # of a bound, relative: by which sums of the same numbers differ between processors


class Bound(NamedTuple):
    """A lower bound in seconds, and its name in BOUNDS."""

    seconds: float
    by: str


class BoundEntry(NamedTuple):
    """A kind of lower bound: the steps that it applies to, its seconds, and its proof in one sentence for reports.

    `same_work`: it bounds every order of the same work, the assignment to ranks and stages being given; otherwise it
    bounds every plan of the job. `beside`: it bounds what a step does beside its tasks, and is added to the best of the
    others.
    """

    applies: Callable[[BoundedStep], bool]
    seconds: Callable[[BoundedStep], float]
    proof: str
    same_work: bool = False
    beside: bool = False


def step_bound(plan: Plan, number: int, pricing: Pricing, tasks: TaskTable, timeline: Timeline) -> Bound:
    """The best bound that applies: over every plan where the step answers a packing problem, otherwise over the same
    work; and over what is done beside its tasks.
    """
    step = BoundedStep(plan, number, pricing, tasks, timeline)
    if has_waves(step):
        return Bound(wave_seconds(plan, number, pricing), WAVES)
    bounds: list[Bound] = []
    for by, each in BOUNDS.items():
        if not each.beside and each.same_work == (step.packing_problem_or_none is None) and each.applies(step):
            bounds.append(Bound(each.seconds(step), by))
            if bounds[-1].seconds >= step.step_seconds * (1 - ROUNDING):  # nothing can be above it
                break
    best = highest(bounds)
    beside = {by: each.seconds(step) for by, each in BOUNDS.items() if each.beside and each.applies(step)}
    return Bound(best.seconds + sum(beside.values()), "+".join((best.by, *beside)))


def highest(bounds: Sequence[Bound]) -> Bound:
    """The greatest bound; of those that differ by rounding alone the first, so that every machine names the same."""
    most = max(bound.seconds for bound in bounds)
    return next(bound for bound in bounds if bound.seconds >= most * (1 - ROUNDING))


def bounds_same_work(by: str) -> bool:
    """Whether a bound is only over orders of the same work; for several names joined by `+`, whether any is."""
    return any(BOUNDS[name].same_work for name in by.split("+") if name in BOUNDS)


def packing_bound(problem: PackingProblem, value: float, effort: int = 2) -> Bound:
    """The best bound over packings whose ranks synchronise in each micro-batch; `value`: seconds of a known plan."""
    return highest((Bound(area_seconds(problem), "area"), Bound(coupled_seconds(problem, value, effort), "coupled")))


def area_seconds(problem: PackingProblem) -> float:
    """Seconds of the step if all work were in perfect balance on the cheapest degrees."""
    work = packing_table(problem).least_rank_seconds
    constants = problem.fewest_micro_batches * problem.least_micro_batch_seconds
    return constants + work / problem.ranks + problem.step_seconds


def exact_seconds(problem: PackingProblem, value: float) -> float:
    """Seconds that the exact program proves; 0 for problems too large for it."""
    return solve_grouping(problem, value).bound if small_enough(problem, value) else 0.0


def exchange_seconds(step: BoundedStep) -> float:
    """Seconds of steps whose gathers and reductions outlast the compute that could hide them."""
    if step.syncs_once:
        return step_exchange_seconds(step.pricing, step.module, step.stream_bound - step.packing_problem.step_seconds)
    problem = exchange_problem(step.pricing, step.module, step.packing_problem)
    return packing_bound(problem, step.step_seconds, step.effort).seconds if problem else 0.0


def busiest_rank_seconds(
    tasks: Sequence[Task], costs: Sequence[Cost], encoders: Container[str] = (), waited: float = 1.0
) -> float:
    """Seconds of compute of the busiest rank, each task weighted by its share of the device; `waited`: of what encoders
    compute while other modules exchange, and the other way round, the share that takes time (costs/side_by_side.py).
    """
    table = TaskTable.of(tasks)
    each = np.array([(cost.value - cost.comm, cost.comm) for cost in costs]).reshape(-1, 2).T
    share = table.column(lambda kind: kind.share if kind.stream == "compute" else 0.0, np.float64)
    of_kinds = np.stack([np.bincount(table.kind, share * part, len(table.kinds)) for part in each], axis=1)
    busy: dict[int, Floats] = defaultdict(lambda: np.zeros((2, 2)))  # of encoders or not: compute, exchange
    for kind, spent in zip(table.kinds, of_kinds, strict=True):
        for rank in kind.ranks if spent.any() else ():
            busy[rank][int(kind.module in encoders)] += spent
    return max((float(own.sum() - (1.0 - waited) * hidden_at_most(own)) for own in busy.values()), default=0.0)


def hidden_at_most(own: Floats) -> float:
    """Seconds in which encoders compute while others on their rank exchange, and the other way round, at most."""
    return float(min(own[0, 1], own[1, 0]) + min(own[0, 0], own[1, 1]))


def busiest_of_step(step: BoundedStep) -> float:
    """The seconds of a step's busiest rank, in any order of its tasks that its software can launch."""
    encoders, own_order = {edge.source for edge in step.plan.edges}, step.plan.uses.software.knobs.orders == "any"
    waited, _ = step.pricing.waited_shares
    costs = step_prices(step.pricing, step.tasks).each_alone(step.tasks)
    return busiest_rank_seconds(step.tasks, costs, encoders, waited if own_order else 1.0)


def has_waves(step: BoundedStep) -> bool:
    """Whether a strategy put towers of several tasks on ranks: no other bound over all plans knows these."""
    return bool(step.plan.uses.tasks and step.plan.made.decided)


def always(step: BoundedStep) -> bool:
    """A bound that applies to every step."""
    return True


def syncs_per_step(step: BoundedStep) -> bool:
    """A bound for ranks that synchronise once per step."""
    return step.syncs_once


def syncs_per_micro_batch(step: BoundedStep) -> bool:
    """A bound for ranks that synchronise in every micro-batch."""
    return not step.syncs_once


BOUNDS: dict[str, BoundEntry] = {
    "area": BoundEntry(
        syncs_per_micro_batch,
        lambda step: area_seconds(step.packing_problem),
        "ranks cannot do more than one second of work a second, and the tokens need a number of micro-batches",
    ),
    "coupled": BoundEntry(
        syncs_per_micro_batch,
        lambda step: step.cached_bound(coupled_seconds, step.effort),
        "while long sequences hold their ranks, the others run out of room for tokens; every place of the "
        "longest ones is enumerated, and the rest flows",
    ),
    "streams": BoundEntry(
        syncs_per_step,
        lambda step: step.stream_bound,
        "where ranks synchronise once a step: how many micro-batches each can run in the time, and what these hold",
    ),
    "exact": BoundEntry(
        syncs_per_micro_batch,
        lambda step: step.cached_bound(exact_seconds),
        "the exact integer program, solved to its end",
    ),
    "exchange": BoundEntry(
        always,
        exchange_seconds,
        "parameters are gathered and gradients reduced however items are placed, and what is computed "
        "meanwhile hides a part of that at most",
    ),
    "tables": BoundEntry(
        lambda step: step.plan.embeddings is not None,
        lambda step: least_table_seconds(step.plan),
        "in any groups of ranks, the slowest rank takes no less than the mean one with the cheapest cut of every table",
        beside=True,
    ),
    WAVES: BoundEntry(
        has_waves,
        lambda step: wave_seconds(step.plan, step.number, step.pricing),
        "however samples are split over ranks and passes, each tower takes some seconds of ranks at least, and all of "
        "them have to find room in the step",
    ),
    "busiest_rank": BoundEntry(
        always,
        busiest_of_step,
        "given who does what, no order of the tasks ends before the busiest rank has done its own",
        same_work=True,
    ),
    "order": BoundEntry(
        lambda step: step.order_decided,
        lambda step: order_bound_seconds(step.plan, step.pricing, step.tasks),
        "given who does what in which stage, every order of the passes has to wait for the path through "
        "the stages, for a stage's own work, and for room in its memory, in whatever sequence micro-batches come",
        same_work=True,
    ),
}
