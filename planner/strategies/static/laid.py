"""A static layout as a plan: which replica works on which sequences in which micro-batch; and what its step takes."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import ceil

from planner.costs.pricing import Pricing, pricing_of
from planner.costs.static.layouts import SCHEMES
from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.model import Group, Plan, Row
from planner.plan.task import Split
from planner.simulate import Timeline, simulate
from planner.specs.base import Ranks, changed
from planner.specs.inputs import Inputs
from planner.strategies.base import draft, uses
from planner.strategies.static.choice import Choice, Trained, layout_of, setup_for
from planner.strategies.static.screen import Problem

Cells = list[list[tuple[int, ...]]]  # of each replica, the items of each micro-batch


def laid(inputs: Inputs, problem: Problem, choice: Choice) -> Plan:
    """The layout with all its items, still unpriced."""
    trained = problem.trained
    layouts = {inputs.module: layout_of(choice, trained)}
    used = uses(inputs, layouts, (), {inputs.module: setup_for(choice, trained)})
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices)
    cells = shared_out(pricing, inputs, choice, trained)
    groups = replicas(choice, trained.ranks, range(len(cells)))
    job = changed(inputs.job, sync="micro_batch" if choice.zero == 3 else "step")
    plan = draft(replace(inputs, job=job), used, layouts, groups, rows(cells, choice))
    if choice.pp == 1:
        return plan
    usual = "interleaved" if choice.vpp > 1 else "1f1b"
    order = next((name for name, scheme in SCHEMES.items() if scheme == trained.schedule), usual)
    return changed(plan, steps=(changed(plan.steps[0], order={inputs.module: order}),))


def shared_out(pricing: Pricing, inputs: Inputs, choice: Choice, trained: Trained) -> Cells:
    """Longest first, each item to the replica that has least to do and room for one more, and there likewise to a
    micro-batch: first ones hold the longest.
    """
    ranks, split = Ranks(range(choice.tp * choice.cp)), Split(1, choice.cp)
    forward, backward = (pricing.line(inputs.module, ranks, split, first)[0] for first in (True, False))
    line, count = forward + backward, micro_batches(choice, trained)
    sizes = inputs.batches[0].items
    seconds = {size: line.of(size) for size in set(sizes.values())}
    order = sorted(sizes, key=lambda item: (-sizes[item], item))
    loads = {item: seconds[sizes[item]] for item in order}
    dealt = deal(order, loads, choice.dp(trained.ranks), count * choice.micro_batch)
    return [[tuple(row) for row in deal(items, loads, count, choice.micro_batch)] for items in dealt]


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


def micro_batches(choice: Choice, trained: Trained) -> int:
    """Of each replica; interleaving takes a multiple of the ranks of its pipeline."""
    count = ceil(len(trained.sizes) / (choice.dp(trained.ranks) * choice.micro_batch))
    return ceil(count / choice.pp) * choice.pp if choice.vpp > 1 else count


def replicas(choice: Choice, ranks: int, numbers: range) -> dict[str, Group]:
    """The ranks of each replica on all stages: neighbours on each."""
    block, stage = choice.tp * choice.cp, ranks // choice.pp
    return {
        f"dp{number}": Group(
            ranks=Ranks(s * stage + number * block + rank for s in range(choice.pp) for rank in range(block)),
            split={"ring": choice.cp} if choice.cp > 1 else {},
        )
        for number in numbers
    }


def rows(cells: Cells, choice: Choice) -> tuple[Row, ...]:
    """One after the other; interleaving takes even those that are empty."""
    found: list[Row] = [
        {f"dp{replica}": items[number] for replica, items in enumerate(cells) if items[number]}
        for number in range(len(cells[0]))
    ]
    return tuple(row for row in found if row or choice.vpp > 1)


def step_seconds(plan: Plan, choice: Choice, trained: Trained) -> float:
    """Of one step, simulated. Equal micro-batches come and go at a steady pace once a pipeline is full: many of them
    are as many rounds more of what one round more takes.
    """
    count, round_ = len(plan.steps[0].micro_batches), choice.pp
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
    return simulate(expand(plan, 0, others.ranks), pricing_of(plan).price, plan.size, others)
