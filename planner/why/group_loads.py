"""Load and slack of each group of a step."""

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from planner.costs import activation_cap, pricing_of
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.scoring import Score
from planner.specs.base import Ranks, Spec
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.shapes import resident_layers
from planner.why.group_slack import GroupSlack, slack_by_micro_batch, slack_over_step
from planner.why.resize_cluster import spans_nodes

NO_SLACK = 1e-9  # slack relative to the load, below which a group is critical


class GroupPlace(NamedTuple):
    """What a group is by its ranks alone."""

    room: int  # tokens that one of its ranks may hold, 0 where that is not known
    crosses_nodes: bool


class GroupLoad(Spec, omit_defaults=False):
    """One group in one micro-batch."""

    module: str
    micro_batch: int
    group: str
    ranks: Ranks
    degree: int
    crosses_nodes: bool
    items: tuple[int, ...]
    tokens: int
    held: int  # of these, on the devices: offloaded activations count less
    room: int  # token capacity of its ranks; 0: not known, of stages or several modules
    seconds: float  # forward and backward
    slack: float  # seconds by which it could be longer without delaying the step
    waits_for: str  # the critical group, or critical rank if ranks sync once a step; empty: this one
    rank: int | None  # its rank that works longest over the step; None: ranks sync every micro-batch
    rank_seconds: float | None  # during which that rank works


def group_loads(plan: Plan, score: Score) -> list[GroupLoad]:
    """Load of every group of a plan of one step, in the order of the plan.

    Where ranks synchronise in every micro-batch, its slowest group is critical; where they synchronise once a step, the
    rank that finishes last. Groups of different modules are not compared.
    """
    busy = score.timeline.module_seconds()
    cells = [
        (micro_batch, a)
        for micro_batch, placed in enumerate(plan.steps[0].micro_batches)
        for a in assignments(plan, placed)
    ]
    cells = [(micro_batch, a) for micro_batch, a in cells if a.items]
    ranks_of = {a.group: plan.groups[a.group].ranks for _, a in cells}
    slacks: dict[tuple[str, int, str], GroupSlack] = {}
    for module in dict.fromkeys(a.module for _, a in cells):
        seconds = {(at, a.group): busy.get((module, at, a.group), 0.0) for at, a in cells if a.module == module}
        together = plan.steps[0].sync == "micro_batch"
        found = slack_by_micro_batch(seconds) if together else slack_over_step(ranks_of, seconds)
        slacks |= {(module, *key): slack for key, slack in found.items()}
    kinds = {(a.module, a.group): kinds_of(plan, ranks_of[a.group]) for _, a in cells}
    rooms = {key: rank_capacity(plan, *key) for key in {(module, of) for (module, _), of in kinds.items()}}
    places = {
        (module, group): GroupPlace(rooms[module, of], crosses_nodes(plan, module, ranks_of[group]))
        for (module, group), of in kinds.items()
    }
    return [
        load_of(
            plan,
            at,
            a,
            places[a.module, a.group],
            busy.get((a.module, at, a.group), 0.0),
            slacks[a.module, at, a.group],
        )
        for at, a in cells
    ]


def crosses_nodes(plan: Plan, module: str, ranks: Ranks) -> bool:
    """Whether passes of a group exchange between nodes: on any stage, as stages send to each other apart from them."""
    layout, own = plan.layouts[module], set(ranks)
    on_stages = ([rank for rank in stage_ranks(layout, stage) if rank in own] for stage in range(layout.pp))
    return any(spans_nodes(plan.uses.cluster, Ranks(sorted(part))) for part in on_stages if part)


def load_of(
    plan: Plan, micro_batch: int, a: Assignment, place: GroupPlace, seconds: float, slack: GroupSlack
) -> GroupLoad:
    """Load of one group."""
    group, layout = plan.groups[a.group], plan.layouts[a.module]
    degree = group.resolved_split(layout).degree
    has_slack = slack.slack > NO_SLACK * (seconds + slack.slack)
    return GroupLoad(
        module=a.module,
        micro_batch=micro_batch,
        group=a.group,
        ranks=group.ranks,
        degree=degree,
        crosses_nodes=place.crosses_nodes,
        items=a.items,
        tokens=sum(plan.uses.tokens(a.module, item) for item in a.items),
        held=held_tokens(plan, a),
        room=degree * place.room,
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


def rank_capacity(plan: Plan, module: str, kinds: frozenset[str]) -> int:
    """Token capacity per rank: of the kind with least, among these. 0 where ranks hold stages or several modules, as
    what they hold at once depends on the order of passes, and where layers differ in their experts.
    """
    layout = plan.layouts[module]
    if len(plan.layouts) > 1 or layout.stages or layout.experts:
        return 0
    return min(kind_capacity(plan, module, kind) for kind in kinds)


def kind_capacity(plan: Plan, module: str, kind: str) -> int:
    return max(0, activation_cap(pricing_of(plan), module, plan.uses, kind))


def kinds_of(plan: Plan, ranks: Iterable[int]) -> frozenset[str]:
    return frozenset(device_of_rank(plan.uses.cluster, rank) for rank in ranks)
