"""Pairs of ranks that send to each other in any step of a run: channels are created before the first."""

from collections.abc import Iterator
from itertools import product

from planner.launch.communication import RankPair
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.plan.tokens.reading_stages import reading_stages
from planner.plan.tokens.resharding import is_between_modules
from planner.runtime.exchange.edge_transfers import edge_transfers


def channel_pairs(plan: Plan) -> set[RankPair]:
    """All (sender, receiver) pairs: between pipeline stages the i-th ranks, between modules those that read outputs."""
    pairs: set[RankPair] = set()
    if plan.then:
        linked = {*between_stages(plan), *between_modules(plan)}
        pairs = {pair for source, target in linked if source != target for pair in ((source, target), (target, source))}
    for number in range(len(plan.steps)):
        tasks = expand(plan, number)
        for task in tasks:
            if task.phase == "send" and not is_between_modules(task):
                pairs.update(zip(task.ranks, task.peers, strict=True))
        crossing = {
            each.pair(of) for transfers in edge_transfers(plan, tasks).values() for each in transfers for of in "FB"
        }
        pairs |= {pair for pair in crossing if pair[0] != pair[1]}
    return pairs


def between_stages(plan: Plan) -> Iterator[RankPair]:
    """Pairs that send activations forward in any step on the groups of a plan, also steps planned during the run; with
    chunks (virtual stages) also from the last stage to the first.
    """
    for layout in plan.layouts.values():
        stages = layout.pp
        of_stages = [stage_ranks(layout, stage) for stage in range(stages)]
        for group in plan.groups.values():
            members = [sorted(set(group.ranks) & set(ranks)) for ranks in of_stages]
            following = [*members[1:], members[0]] if len(layout.stages) > stages else members[1:]
            for near, far in zip(members, following, strict=False):
                yield from zip(near, far, strict=False)  # stages of unequal size are illegal in any step


def between_modules(plan: Plan) -> Iterator[RankPair]:
    """Pairs over edges in any step: every rank with outputs of the source, every rank of the target that reads."""
    for edge in plan.edges:
        source, target = plan.layouts[edge.source], plan.layouts[edge.target]
        last, readers = source.pp - 1, reading_stages(plan.uses.models[edge.target], target, edge.by)
        for stage in dict.fromkeys(number % target.pp for number in readers):
            yield from product(stage_ranks(source, last), stage_ranks(target, stage))
