"""Lower bounds on the seconds of a step: no packing of these sequences on these ranks can be faster.

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

`order` and `busiest_rank` are of every order of the same work (OF_SAME_WORK); the others of every plan of the job.
"""

from collections.abc import Sequence
from typing import NamedTuple

from planner.costs.pricing import Pricing
from planner.costs.step.sequences import Sequences, sequences
from planner.costs.step.table import make_table
from planner.plan.model import Plan, assignments
from planner.plan.task import Task
from planner.simulate import Timeline
from planner.verify.coupled import coupled_seconds
from planner.verify.covered import usual_groups, usual_offload, usual_order, whole_items
from planner.verify.exact import prove, small_enough
from planner.verify.exchange import rows_by_exchange, step_by_exchange
from planner.verify.pipelined import order_seconds
from planner.verify.streams import stream_seconds

OVER_PLANS = frozenset({"area", "longest", "coupled", "streams", "exact", "exchange"})
OF_SAME_WORK = frozenset({"order", "busiest_rank"})  # who does what in which stage is taken as it is


class Bound(NamedTuple):
    seconds: float
    by: str


def lower_bound(problem: Sequences, value: float, effort: int = 2) -> Bound:
    """The best of the bounds, and its name; `value` is what a known plan is worth."""
    bounds = area(problem), longest(problem), coupled(problem, value, effort)
    return max(bounds, key=lambda bound: bound.seconds)


def area(problem: Sequences) -> Bound:
    work = make_table(problem).work
    rows = problem.fewest_rows * problem.row_constant
    return Bound(rows + work / problem.ranks + problem.step_seconds, "area")


def longest(problem: Sequences) -> Bound:
    alone = float(make_table(problem).seconds.min(axis=1).max())
    rows = problem.fewest_rows * problem.row_constant
    return Bound(rows + alone + problem.step_seconds, "longest")


def coupled(problem: Sequences, value: float, effort: int) -> Bound:
    return Bound(coupled_seconds(problem, value, effort), "coupled")


def step_bound(plan: Plan, number: int, pricing: Pricing, tasks: Sequence[Task], timeline: Timeline) -> Bound:
    """Over every packing when one module is spread by data parallelism as strategies do; else for what the plan has."""
    step, value, effort = plan.steps[number], timeline.step_seconds, plan.made.effort
    (module, layout), *others = plan.layouts.items()
    if others or layout.stages or not plan.uses.degrees:
        busiest = busiest_rank(tasks, timeline)
        if busiest.seconds >= value:  # nothing can be above it
            return busiest
        return max(busiest, ordered(plan, number, pricing, tasks), key=lambda bound: bound.seconds)
    if not (usual_order(plan, step, module) and usual_groups(plan, number) and whole_items(tasks)):
        return busiest_rank(tasks, timeline)
    problem = sequences(pricing, module, plan.uses, step_sizes(plan, number, module), step.sync)
    if not usual_offload(problem, tasks):
        return busiest_rank(tasks, timeline)
    if step.sync == "step":
        seconds = stream_seconds(problem, value, effort)
        other = step_by_exchange(pricing, module, seconds - problem.step_seconds)
        return max(Bound(seconds, "streams"), Bound(other, "exchange"), key=lambda bound: bound.seconds)
    found = [lower_bound(problem, value, effort), exact(problem, value)]
    behind = rows_by_exchange(pricing, module, problem)
    found += [lower_bound(behind, value, effort)._replace(by="exchange")] if behind else []
    return max(found, key=lambda bound: bound.seconds)


def ordered(plan: Plan, number: int, pricing: Pricing, tasks: Sequence[Task]) -> Bound:
    """Given who does what in which stage: no order of the passes is shorter, where their order is what was decided."""
    written = any(not isinstance(order, str) for order in plan.steps[number].order.values())
    decided = written or any(task.phase == "I" for task in tasks)
    return Bound(order_seconds(plan, pricing, tasks) if decided else 0.0, "order")


def exact(problem: Sequences, value: float) -> Bound:
    """What the exact program proves, where it can be expected to; nothing elsewhere."""
    return Bound(prove(problem, value).bound if small_enough(problem, value) else 0.0, "exact")


def step_sizes(plan: Plan, number: int, module: str) -> dict[int, int]:
    """Item → tokens of what one step works on."""
    items = (i for row in plan.steps[number].micro_batches for a in assignments(plan, row) for i in a.items)
    return {item: plan.uses.tokens(module, item) for item in items}


def busiest_rank(tasks: Sequence[Task], timeline: Timeline) -> Bound:
    """Given who does what: no order of it ends before the busiest rank has done its own, beside what shares it."""
    shares = {task.id: task.share for task in tasks}
    busy: dict[int, float] = {}
    for event in timeline.events:
        if event.stream == "compute":
            for rank in event.ranks:
                busy[rank] = busy.get(rank, 0.0) + shares[event.id] * event.seconds
    return Bound(max(busy.values(), default=0.0), "busiest_rank")
