"""A static layout as a plan: which replica works on which sequences in which micro-batch; and its simulated step."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import ceil

from planner.costs.compute.lines import Line
from planner.costs.pricing import Pricing, pricing_of
from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.mesh import groups_over
from planner.plan.model import Group, Layout, Plan, Row
from planner.simulate import Timeline, simulate
from planner.specs.base import Ranks, changed
from planner.specs.inputs import Inputs
from planner.specs.parallelism import RANK_ORDER
from planner.strategies.base import draft, uses
from planner.strategies.static.layouts import Trained
from planner.strategies.static.screen import Problem

ReplicaItems = list[list[tuple[int, ...]]]  # by replica, the items of each micro-batch


def laid(inputs: Inputs, problem: Problem, layout: Layout) -> Plan:
    """The layout with all its items as an unpriced plan."""
    layouts = {inputs.module: layout}
    used = uses(inputs, layouts, ())
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    cells = shared_out(pricing, inputs, layout, problem.trained)
    job = changed(inputs.job, sync="micro_batch" if layout.zero == 3 else "step")
    return draft(replace(inputs, job=job), used, layouts, replicas(layout), rows(cells, layout))


def shared_out(pricing: Pricing, inputs: Inputs, layout: Layout, trained: Trained) -> ReplicaItems:
    """Assign items longest first to the least loaded replica with room for one more, and there likewise to a
    micro-batch: the first micro-batches hold the longest items.
    """
    line, count = alone(pricing, inputs.module, layout), micro_batches(layout, trained)
    sizes = inputs.batches[0].items
    seconds = {size: line.of(size) for size in set(sizes.values())}
    order = sorted(sizes, key=lambda item: (-sizes[item], item))
    loads = {item: seconds[sizes[item]] for item in order}
    assigned = deal(order, loads, layout.dp * layout.replica, count * layout.micro_batch)
    return [[tuple(micro_batch) for micro_batch in deal(items, loads, count, layout.micro_batch)] for items in assigned]


def alone(pricing: Pricing, module: str, layout: Layout) -> Line:
    """Seconds of both passes of an item through a whole module on one replica, as a line over its tokens."""
    ranks = Ranks(range(layout.tp * layout.cp))
    whole = changed(layout, rank_order=RANK_ORDER)  # the placement of a replica's ranks hardly changes the balance
    near = Pricing(pricing.models, {module: whole}, pricing.cluster, pricing.prices, pricing.devices)
    forward, backward = (near.line(module, ranks, layout.split, first)[0] for first in (True, False))
    return forward + backward


def deal(items: Sequence[int], loads: dict[int, float], bins: int, room: int) -> list[list[int]]:
    """Assign each item in turn to the least loaded bin with room for another; of equal ones to the first."""
    assigned: list[list[int]] = [[] for _ in range(bins)]
    least = [(0.0, bin_) for bin_ in range(bins)]
    for item in items:
        load, bin_ = heappop(least)
        assigned[bin_].append(item)
        if len(assigned[bin_]) < room:
            heappush(least, (load + loads[item], bin_))
    return assigned


def micro_batches(layout: Layout, trained: Trained) -> int:
    """Micro-batches of each replica; interleaving needs a multiple of the pipeline's ranks."""
    count = ceil(len(trained.sizes) / (layout.dp * layout.replica * layout.micro_batch))
    return ceil(count / layout.pp) * layout.pp if layout.vpp > 1 else count


def replicas(layout: Layout) -> dict[str, Group]:
    """The ranks of each replica on all stages, as groups; items are split over them as the layout says."""
    blocks = dict.fromkeys(groups_over(layout, ("tp", "cp", "pp")).values())
    return {f"dp{number}": Group(ranks=ranks) for number, ranks in enumerate(sorted(blocks))}


def rows(cells: ReplicaItems, layout: Layout) -> tuple[Row, ...]:
    """The step's micro-batches; interleaving keeps empty ones."""
    found: list[Row] = [
        {f"dp{replica}": items[number] for replica, items in enumerate(cells) if items[number]}
        for number in range(len(cells[0]))
    ]
    return tuple(micro_batch for micro_batch in found if micro_batch or layout.vpp > 1)


def step_seconds(plan: Plan, layout: Layout, trained: Trained) -> float:
    """Simulated seconds of one step. With equal micro-batches a full pipeline is periodic, so many of them are
    extrapolated from the seconds of one more round.
    """
    count, round_ = len(plan.steps[0].micro_batches), layout.pp
    short = 2 * round_ + count % round_
    if not trained.equal or count <= short + 2 * round_:
        return timeline(plan).step_seconds
    first, second = (timeline(first_micro_batches(plan, number)).step_seconds for number in (short, short + round_))
    return first + (second - first) * (count - short) / round_


def first_micro_batches(plan: Plan, count: int) -> Plan:
    """The plan with only its first micro-batches."""
    return changed(plan, steps=(changed(plan.steps[0], micro_batches=plan.steps[0].micro_batches[:count]),))


def timeline(plan: Plan) -> Timeline:
    """The simulated step, with one replica of each kind: those with sequences of the same lengths are identical."""
    others = alike_groups(plan, 0)
    tasks = expand(plan, 0, others.ranks)
    return simulate(tasks, pricing_of(plan).among(tasks), plan.size, others)
