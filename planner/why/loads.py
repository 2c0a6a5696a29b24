"""Load and slack of each group of a step."""

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

SAME = 1e-9  # slack relative to the load, below which a group is critical


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
    room: int  # token capacity of its ranks
    seconds: float  # forward and backward
    slack: float  # seconds by which it could be longer without delaying the step
    waits_for: str  # the critical group, or critical rank if ranks sync once a step; empty: this one
    rank: int | None  # its rank that works longest over the step; None: ranks sync every micro-batch
    rank_seconds: float | None  # during which that rank works


def loads(plan: Plan, score: Score) -> list[Load]:
    """Load of every group of a plan of one step, in the order of the plan.

    Where ranks synchronise in every micro-batch, its slowest group is critical; where they synchronise once a step, the
    rank that finishes last.
    """
    busy = score.timeline.group_seconds()
    cells = [
        (micro_batch, a)
        for micro_batch, placed in enumerate(plan.steps[0].micro_batches)
        for a in assignments(plan, placed)
    ]
    cells = [(micro_batch, a) for micro_batch, a in cells if a.items]
    seconds = {(micro_batch, a.group): busy.get((micro_batch, a.group), 0.0) for micro_batch, a in cells}
    ranks_of = {a.group: plan.groups[a.group].ranks for _, a in cells}
    slacks = by_row(seconds) if plan.steps[0].sync == "micro_batch" else over_step(ranks_of, seconds)
    return [
        load(plan, micro_batch, a, seconds[micro_batch, a.group], slacks[micro_batch, a.group])
        for micro_batch, a in cells
    ]


def load(plan: Plan, micro_batch: int, a: Assignment, seconds: float, slack: Pace) -> Load:
    group, layout = plan.groups[a.group], plan.layouts[a.module]
    degree = group.split_in(layout).degree
    has_slack = slack.slack > SAME * (seconds + slack.slack)
    return Load(
        micro_batch=micro_batch,
        group=a.group,
        ranks=group.ranks,
        degree=degree,
        crosses_nodes=crosses(plan.uses.cluster, group.ranks),
        items=a.items,
        tokens=sum(plan.uses.tokens(a.module, item) for item in a.items),
        held=held_tokens(plan, a),
        room=degree * rank_room(plan, group.ranks),
        seconds=seconds,
        slack=slack.slack if has_slack else 0.0,
        waits_for=slack.critical if has_slack else "",
        rank=slack.rank,
        rank_seconds=slack.rank_seconds,
    )


def held_tokens(plan: Plan, a: Assignment) -> int:
    """Tokens whose activations stay on the devices; a token offloaded in part counts in part."""
    layers = plan.uses.models[a.module].layers
    total = 0.0
    for item, offload in zip(a.items, a.offload_in(plan.layouts[a.module]), strict=True):
        total += plan.uses.tokens(a.module, item) * resident_layers(layers, offload) / layers
    return ceil(total)


def rank_room(plan: Plan, ranks: Ranks) -> int:
    """Token capacity per rank: of the kind with least, among these ranks."""
    module, _ = only_module(plan)
    return min(kind_room(plan, module, kind) for kind in kinds(plan, ranks))


def kind_room(plan: Plan, module: str, kind: str) -> int:
    return max(0, held_cap(pricing_of(plan), module, plan.uses, kind))


def kinds(plan: Plan, ranks: Iterable[int]) -> set[str]:
    return {kind_of(plan.uses.cluster, rank) for rank in ranks}
