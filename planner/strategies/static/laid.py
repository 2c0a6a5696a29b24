"""A static layout as a plan: which replica works on which sequences in which micro-batch; and what its step takes."""

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

Cells = list[list[tuple[int, ...]]]  # of each replica, the items of each micro-batch


def laid(inputs: Inputs, problem: Problem, layout: Layout) -> Plan:
    """The layout with all its items, still unpriced."""
    layouts = {inputs.module: layout}
    used = uses(inputs, layouts, ())
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    cells = shared_out(pricing, inputs, layout, problem.trained)
    job = changed(inputs.job, sync="micro_batch" if layout.zero == 3 else "step")
    return draft(replace(inputs, job=job), used, layouts, replicas(layout), rows(cells, layout))


def shared_out(pricing: Pricing, inputs: Inputs, layout: Layout, trained: Trained) -> Cells:
    """Longest first, each item to the replica that has least to do and room for one more, and there likewise to a
    micro-batch: first ones hold the longest.
    """
    line, count = alone(pricing, inputs.module, layout), micro_batches(layout, trained)
    sizes = inputs.batches[0].items
    seconds = {size: line.of(size) for size in set(sizes.values())}
    order = sorted(sizes, key=lambda item: (-sizes[item], item))
    loads = {item: seconds[sizes[item]] for item in order}
    dealt = deal(order, loads, layout.dp * layout.replica, count * layout.micro_batch)
    return [[tuple(row) for row in deal(items, loads, count, layout.micro_batch)] for items in dealt]


def alone(pricing: Pricing, module: str, layout: Layout) -> Line:
    """Both passes of an item through a whole module, on one replica."""
    ranks = Ranks(range(layout.tp * layout.cp))
    whole = changed(layout, rank_order=RANK_ORDER)  # where the ranks of a replica lie changes little of its shares
    near = Pricing(pricing.models, {module: whole}, pricing.cluster, pricing.prices, pricing.devices)
    forward, backward = (near.line(module, ranks, layout.split, first)[0] for first in (True, False))
    return forward + backward


def deal(items: Sequence[int], loads: dict[int, float], hands: int, room: int) -> list[list[int]]:
    """Each item in turn to the hand of least load that has room; of equal ones to the first."""
    dealt: list[list[int]] = [[] for _ in range(hands)]
    least = [(0.0, hand) for hand in range(hands)]
    for item in items:
        load, hand = heappop(least)
        dealt[hand].append(item)
        if len(dealt[hand]) < room:
            heappush(least, (load + loads[item], hand))
    return dealt


def micro_batches(layout: Layout, trained: Trained) -> int:
    """Of each replica; interleaving takes a multiple of the ranks of its pipeline."""
    count = ceil(len(trained.sizes) / (layout.dp * layout.replica * layout.micro_batch))
    return ceil(count / layout.pp) * layout.pp if layout.vpp > 1 else count


def replicas(layout: Layout) -> dict[str, Group]:
    """The ranks of each replica on all stages; items are split over them as the layout says."""
    blocks = dict.fromkeys(groups_over(layout, ("tp", "cp", "pp")).values())
    return {f"dp{number}": Group(ranks=ranks) for number, ranks in enumerate(sorted(blocks))}


def rows(cells: Cells, layout: Layout) -> tuple[Row, ...]:
    """One after the other; interleaving takes even those that are empty."""
    found: list[Row] = [
        {f"dp{replica}": items[number] for replica, items in enumerate(cells) if items[number]}
        for number in range(len(cells[0]))
    ]
    return tuple(row for row in found if row or layout.vpp > 1)


def step_seconds(plan: Plan, layout: Layout, trained: Trained) -> float:
    """Of one step, simulated. Equal micro-batches come and go at a steady pace once a pipeline is full: many of them
    are as many rounds more of what one round more takes.
    """
    count, round_ = len(plan.steps[0].micro_batches), layout.pp
    few = 2 * round_ + count % round_
    if not trained.equal or count <= few + 2 * round_:
        return timeline(plan).step_seconds
    first, second = (timeline(shortened(plan, rows)).step_seconds for rows in (few, few + round_))
    return first + (second - first) * (count - few) / round_


def shortened(plan: Plan, count: int) -> Plan:
    """The plan with its first micro-batches only."""
    return changed(plan, steps=(changed(plan.steps[0], micro_batches=plan.steps[0].micro_batches[:count]),))


def timeline(plan: Plan) -> Timeline:
    """Of one step, with one replica of each kind: those that work on sequences of the same lengths do all alike."""
    others = alike_groups(plan, 0)
    tasks = expand(plan, 0, others.ranks)
    return simulate(tasks, pricing_of(plan).among(tasks), plan.size, others)
