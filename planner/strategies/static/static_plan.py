"""A static layout as a plan: which replica works on which sequences in which micro-batch; and its simulated step."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import ceil

from planner.costs import CostLine, Pricing, pricing_of
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.mesh.synchronisation import sync_of
from planner.plan.plan_file import Group, Layout, MicroBatch, Plan
from planner.plan.tasks.expand import expand
from planner.simulate import Timeline, simulate
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import DEFAULT_RANK_ORDER
from planner.strategies.plan_drafts import draft_plan, plan_uses
from planner.strategies.static.layout_fields import TrainingSetup
from planner.strategies.static.layout_screening import LayoutProblem

ReplicaItems = list[list[tuple[int, ...]]]  # by replica, the items of each micro-batch


def static_plan(inputs: Inputs, problem: LayoutProblem, layout: Layout) -> Plan:
    """The layout with all its items as an unpriced plan."""
    layouts = {inputs.module: layout}
    used = plan_uses(inputs, layouts, ())
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    cells = assign_items(pricing, inputs, layout, problem.trained)
    job = with_fields(inputs.job, sync=sync_of(layout))
    return draft_plan(
        replace(inputs, job=job), used, layouts, replica_groups(layout), plan_micro_batches(cells, layout)
    )


def assign_items(pricing: Pricing, inputs: Inputs, layout: Layout, trained: TrainingSetup) -> ReplicaItems:
    """Assign items longest first to the least loaded replica with room for one more, and there likewise to a
    micro-batch: the first micro-batches hold the longest items.
    """
    line, count = item_line(pricing, inputs.module, layout), micro_batch_count(layout, trained)
    sizes = inputs.batches[0].items
    seconds = {size: line.item_seconds(size) for size in set(sizes.values())}
    order = sorted(sizes, key=lambda item: (-sizes[item], item))
    loads = {item: seconds[sizes[item]] for item in order}
    assigned = assign_least_loaded(order, loads, layout.dp * layout.replica, count * layout.micro_batch)
    return [
        [tuple(micro_batch) for micro_batch in assign_least_loaded(items, loads, count, layout.micro_batch)]
        for items in assigned
    ]


def item_line(pricing: Pricing, module: str, layout: Layout) -> CostLine:
    """Seconds of both passes of an item through a whole module on one replica, as a line over its tokens."""
    ranks = Ranks(range(layout.tp * layout.cp))
    whole = with_fields(
        layout, rank_order=DEFAULT_RANK_ORDER
    )  # the placement of a replica's ranks hardly changes the balance
    near = Pricing(pricing.models, {module: whole}, pricing.cluster, pricing.prices, pricing.devices)
    forward, backward = (near.module_line(module, ranks, layout.default_split, first)[0] for first in (True, False))
    return forward + backward


def assign_least_loaded(items: Sequence[int], loads: dict[int, float], bins: int, room: int) -> list[list[int]]:
    """Assign each item in turn to the least loaded bin with room for another; of equal ones to the first."""
    assigned: list[list[int]] = [[] for _ in range(bins)]
    least = [(0.0, bin_) for bin_ in range(bins)]
    for item in items:
        load, bin_ = heappop(least)
        assigned[bin_].append(item)
        if len(assigned[bin_]) < room:
            heappush(least, (load + loads[item], bin_))
    return assigned


def micro_batch_count(layout: Layout, trained: TrainingSetup) -> int:
    """Micro-batches of each replica; interleaving needs a multiple of the pipeline's ranks."""
    count = ceil(len(trained.sizes) / (layout.dp * layout.replica * layout.micro_batch))
    return ceil(count / layout.pp) * layout.pp if layout.vpp > 1 else count


def replica_groups(layout: Layout) -> dict[str, Group]:
    """The ranks of each replica on all stages, as groups; items are split over them as the layout says."""
    blocks = dict.fromkeys(groups_over(layout, ("tp", "cp", "pp")).values())
    return {f"dp{number}": Group(ranks=ranks) for number, ranks in enumerate(sorted(blocks))}


def plan_micro_batches(cells: ReplicaItems, layout: Layout) -> tuple[MicroBatch, ...]:
    """The step's micro-batches; interleaving keeps empty ones."""
    found: list[MicroBatch] = [
        {f"dp{replica}": items[number] for replica, items in enumerate(cells) if items[number]}
        for number in range(len(cells[0]))
    ]
    return tuple(micro_batch for micro_batch in found if micro_batch or layout.vpp > 1)


def simulated_step_seconds(plan: Plan, layout: Layout, trained: TrainingSetup) -> float:
    """Simulated seconds of one step. With equal micro-batches a full pipeline is periodic, so many of them are
    extrapolated from the seconds of one more round.
    """
    count, round_ = len(plan.steps[0].micro_batches), layout.pp
    short = 2 * round_ + count % round_
    if not trained.equal_lengths or count <= short + 2 * round_:
        return step_timeline(plan).step_seconds
    first, second = (
        step_timeline(first_micro_batches(plan, number)).step_seconds for number in (short, short + round_)
    )
    return first + (second - first) * (count - short) / round_


def first_micro_batches(plan: Plan, count: int) -> Plan:
    """The plan with only its first micro-batches."""
    return with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=plan.steps[0].micro_batches[:count]),))


def step_timeline(plan: Plan) -> Timeline:
    """The simulated step, with one replica of each kind: those with sequences of the same lengths are identical."""
    others = identical_groups(plan, 0)
    tasks = expand(plan, 0, others.ranks)
    return simulate(tasks, pricing_of(plan).with_concurrency(tasks), plan.size, others)
