"""Who sends to whom in any step of a run: channels are made before the first."""

from collections.abc import Iterator
from itertools import product

from planner.launch.channels import Pair
from planner.plan.expand import expand
from planner.plan.mesh import stage_ranks
from planner.plan.model import Plan
from planner.plan.reshard import on_edge
from planner.runtime.wires import wires


def pairs(plan: Plan) -> set[Pair]:
    """In a pipeline each rank sends to the one in its place on the next stage; between modules, where rows are read."""
    found: set[Pair] = set()
    if plan.then:
        ways = {*between_stages(plan), *between_modules(plan)}
        found = {way for source, target in ways if source != target for way in ((source, target), (target, source))}
    for number in range(len(plan.steps)):
        tasks = expand(plan, number)
        for task in tasks:
            if task.phase == "send" and not on_edge(task):
                found.update(zip(task.ranks, task.peers, strict=True))
        crossing = {wire.pair(of) for of_cell in wires(plan, tasks).values() for wire in of_cell for of in "FB"}
        found |= {pair for pair in crossing if pair[0] != pair[1]}
    return found


def between_stages(plan: Plan) -> Iterator[Pair]:
    """Forwards in any step on the groups of a plan, as those that come while a run lasts; with chunks, from the last
    stage to the first, too.
    """
    for layout in plan.layouts.values():
        stages = layout.pp
        of_stages = [stage_ranks(layout, stage) for stage in range(stages)]
        for group in plan.groups.values():
            held = [sorted(set(group.ranks) & set(ranks)) for ranks in of_stages]
            following = [*held[1:], held[0]] if len(layout.stages) > stages else held[1:]
            for near, far in zip(held, following, strict=False):
                yield from zip(near, far, strict=False)  # of unequal ends no step is legal


def between_modules(plan: Plan) -> Iterator[Pair]:
    """In any step: any of the ranks with outputs may have some that any of those with inputs reads."""
    for edge in plan.edges:
        source, target = plan.layouts[edge.source], plan.layouts[edge.target]
        last = source.pp - 1
        yield from product(stage_ranks(source, last), stage_ranks(target, 0))
