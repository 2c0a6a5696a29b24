"""Load and slack of each group of a step."""

from collections.abc import Iterable
from math import ceil

from planner.costs import activation_cap, pricing_of
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.scoring import Score
from planner.specs.base import Ranks, Spec
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.shapes import resident_layers
from planner.why.group_slack import GroupSlack, slack_by_micro_batch, slack_over_step
from planner.why.plan_problem import only_module
from planner.why.resize_cluster import spans_nodes

NO_SLACK = 1e-9  # slack relative to the load, below which a group is critical


class GroupLoad(Spec, omit_defaults=False):
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


def group_loads(plan: Plan, score: Score) -> list[GroupLoad]:
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
    slacks = (
        slack_by_micro_batch(seconds) if plan.steps[0].sync == "micro_batch" else slack_over_step(ranks_of, seconds)
    )
    return [
        load_of(plan, micro_batch, a, seconds[micro_batch, a.group], slacks[micro_batch, a.group])
        for micro_batch, a in cells
    ]


def load_of(plan: Plan, micro_batch: int, a: Assignment, seconds: float, slack: GroupSlack) -> GroupLoad:
    group, layout = plan.groups[a.group], plan.layouts[a.module]
    degree = group.resolved_split(layout).degree
    has_slack = slack.slack > NO_SLACK * (seconds + slack.slack)
    return GroupLoad(
        micro_batch=micro_batch,
        group=a.group,
        ranks=group.ranks,
        degree=degree,
        crosses_nodes=spans_nodes(plan.uses.cluster, group.ranks),
        items=a.items,
        tokens=sum(plan.uses.tokens(a.module, item) for item in a.items),
        held=held_tokens(plan, a),
        room=degree * rank_capacity(plan, group.ranks),
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
    for item, offload in zip(a.items, a.offload_shares(plan.layouts[a.module]), strict=True):
        total += plan.uses.tokens(a.module, item) * resident_layers(layers, offload) / layers
    return ceil(total)


def rank_capacity(plan: Plan, ranks: Ranks) -> int:
    """Token capacity per rank: of the kind with least, among these ranks."""
    module, _ = only_module(plan)
    return min(kind_capacity(plan, module, kind) for kind in kinds_of(plan, ranks))


def kind_capacity(plan: Plan, module: str, kind: str) -> int:
    return max(0, activation_cap(pricing_of(plan), module, plan.uses, kind))


def kinds_of(plan: Plan, ranks: Iterable[int]) -> set[str]:
    return {device_of_rank(plan.uses.cluster, rank) for rank in ranks}
