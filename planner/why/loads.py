"""What each group of a step is loaded with, and what it waits for."""

from collections.abc import Iterable
from math import ceil

from planner.costs.pricing import pricing_of
from planner.costs.step.sequences import held_cap
from planner.plan.model import Assignment, Plan, assignments
from planner.specs.base import Ranks, Spec
from planner.specs.cluster import kind_of
from planner.specs.shapes import resident_layers
from planner.verify.score import Score
from planner.why.machine import crosses
from planner.why.pace import Pace, by_row, over_step
from planner.why.problem import only_module

SAME = 1e-9  # seconds of slack, over the load, below which a group waits for nobody


class Load(Spec, omit_defaults=False):
    """One group in one micro-batch."""

    micro_batch: int
    group: str
    ranks: Ranks
    degree: int
    crosses_nodes: bool
    items: tuple[int, ...]
    tokens: int
    held: int  # of these, on the devices: offloaded activations count less
    room: int  # tokens that its ranks can hold
    seconds: float  # forward and backward
    slack: float  # seconds that it could take longer without anything ending later
    waits_for: str  # the group that sets the pace, or the rank where ranks meet once a step; empty when this one does
    rank: int | None  # of its ranks, the one that works longest over the step; None: ranks meet in every micro-batch
    rank_seconds: float | None  # that it works


def loads(plan: Plan, score: Score) -> list[Load]:
    """Every group of a plan of one step, in its order.

    Where ranks meet in every micro-batch, its slowest group sets the pace; where they meet once a step, the rank that
    is done last.
    """
    busy = score.timeline.group_seconds()
    cells = [(row, a) for row, placed in enumerate(plan.steps[0].micro_batches) for a in assignments(plan, placed)]
    cells = [(row, a) for row, a in cells if a.items]
    seconds = {(row, a.group): busy.get((row, a.group), 0.0) for row, a in cells}
    ranks_of = {a.group: plan.groups[a.group].ranks for _, a in cells}
    paces = by_row(seconds) if plan.steps[0].sync == "micro_batch" else over_step(ranks_of, seconds)
    return [load(plan, row, a, seconds[row, a.group], paces[row, a.group]) for row, a in cells]


def load(plan: Plan, row: int, a: Assignment, seconds: float, pace: Pace) -> Load:
    group, layout = plan.groups[a.group], plan.layouts[a.module]
    degree = group.split_in(layout).degree
    waits = pace.slack > SAME * (seconds + pace.slack)
    return Load(
        micro_batch=row,
        group=a.group,
        ranks=group.ranks,
        degree=degree,
        crosses_nodes=crosses(plan.uses.cluster, group.ranks),
        items=a.items,
        tokens=sum(plan.uses.tokens(a.module, item) for item in a.items),
        held=held_tokens(plan, a),
        room=degree * rank_room(plan, group.ranks),
        seconds=seconds,
        slack=pace.slack if waits else 0.0,
        waits_for=pace.by if waits else "",
        rank=pace.rank,
        rank_seconds=pace.rank_seconds,
    )


def held_tokens(plan: Plan, a: Assignment) -> int:
    """Tokens whose activations stay on the devices, where a part of them means a part of the token."""
    layers = plan.uses.models[a.module].layers
    total = 0.0
    for item, offload in zip(a.items, a.offload_in(plan.layouts[a.module]), strict=True):
        total += plan.uses.tokens(a.module, item) * resident_layers(layers, offload) / layers
    return ceil(total)


def rank_room(plan: Plan, ranks: Ranks) -> int:
    """Tokens of a micro-batch that the fullest of these ranks can hold."""
    module, _ = only_module(plan)
    return min(kind_room(plan, module, kind) for kind in kinds(plan, ranks))


def kind_room(plan: Plan, module: str, kind: str) -> int:
    return max(0, held_cap(pricing_of(plan), module, plan.uses, kind))


def kinds(plan: Plan, ranks: Iterable[int]) -> set[str]:
    return {kind_of(plan.uses.cluster, rank) for rank in ranks}
