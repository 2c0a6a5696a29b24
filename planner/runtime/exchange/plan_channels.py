"""Channels between ranks that send to each other in any step of a run: they are created before the first."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product

from planner.launch.communication import Channel, RankPair
from planner.plan.group_catalogue import groups_of_module
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import reading_stages
from planner.plan.tokens.resharding import is_between_modules
from planner.runtime.exchange.edge_transfers import edge_transfers


def plan_channels(plan: Plan, steps: Iterable[Sequence[Task]]) -> set[Channel]:
    """All channels: between pipeline stages for the i-th ranks, between modules for those that read outputs. `steps`:
    the tasks of each step of the plan.
    """
    channels: set[Channel] = set()
    if plan.then:
        for source, target in between_stages(plan):
            channels |= {Channel(source, target, "stages"), Channel(target, source, "stages")}
        for source, target in between_modules(plan):
            channels |= {Channel(source, target, "modules"), Channel(target, source, "modules")}
    for tasks in steps:
        for task in tasks:
            if task.phase == "send" and not is_between_modules(task):
                pairs = zip(task.ranks, task.peers, strict=True)
                channels.update(Channel(source, target, "stages") for source, target in pairs)
        for each in chain.from_iterable(edge_transfers(plan, tasks).values()):
            channels.update(Channel(*each.pair(of), "modules") for of in "FB")
    return {channel for channel in channels if channel.source != channel.target}


def between_stages(plan: Plan) -> Iterator[RankPair]:
    """Pairs that send activations forward in any step on the groups of a plan, also steps planned during the run; with
    chunks (virtual stages) also from the last stage to the first.
    """
    for name, layout in plan.layouts.items():
        stages = layout.pp
        of_stages = [stage_ranks(layout, stage) for stage in range(stages)]
        for group in groups_of_module(plan, name) if stages > 1 else ():
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
