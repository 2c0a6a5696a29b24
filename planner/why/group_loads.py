"""Load and slack of each group of a step, and the group or rank that is critical."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from planner.costs import activation_cap, pricing_of
from planner.errors import InputError
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.scoring import Score
from planner.scoring import score as scored_step
from planner.specs.base import Ranks, Spec
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.shapes import resident_layers
from planner.units import first_few
from planner.why.plan_problem import single_step
from planner.why.resize_cluster import spans_nodes

Key = tuple[int, str]  # micro-batch, group
NO_SLACK = 1e-9  # slack relative to the load, below which a group is critical


class GroupPlace(NamedTuple):
    """Room and nodes of a group, which its ranks alone decide."""

    room: int  # tokens that one of its ranks may hold, 0 where that is not known
    crosses_nodes: bool


@dataclass(frozen=True, slots=True)
class GroupSlack:
    """Slack of a group, and the group or rank that it waits for."""

    critical: str  # a group if ranks synchronise in every micro-batch, else a rank
    slack: float  # seconds
    rank: int | None = None  # its rank that works longest over the step; None: ranks sync every micro-batch
    rank_seconds: float | None = None  # during which that rank works


class GroupLoad(Spec, omit_defaults=False):
    """Work, tokens and slack of one group in one micro-batch."""

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


class WhyGroup(Spec, omit_defaults=False):
    """The answer for a group of a step: its load in every micro-batch in which it works."""

    plan: str
    step: int
    group: str
    value: float  # seconds of the step
    sizes: dict[str, dict[int, int]]  # tokens of its items, by module
    loads: tuple[GroupLoad, ...]  # one for every micro-batch that it works in


def why_group(plan: Plan, number: int, group: str) -> WhyGroup:
    """The answer for one group of a step. Raises InputError when the step has no such group."""
    step = single_step(plan, number)
    if group not in step.groups:
        fix = f"one of {first_few([*step.groups])}"
        raise InputError(f"step {number} of the plan has no group `{group}`", where="GROUP", fix=fix)
    scored = scored_step(step)
    loads = tuple(load for load in group_loads(step, scored) if load.group == group)
    return WhyGroup(
        plan=plan.name,
        step=number,
        group=group,
        value=scored.step_seconds,
        sizes={
            module: {
                item: step.uses.tokens(module, item) for load in loads if load.module == module for item in load.items
            }
            for module in dict.fromkeys(load.module for load in loads)
        },
        loads=loads,
    )


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
        by_group = slack_by_micro_batch(seconds) if together else slack_over_step(ranks_of, seconds)
        slacks |= {(module, *key): slack for key, slack in by_group.items()}
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
    layout, of_group = plan.layouts[module], set(ranks)
    on_stages = ([rank for rank in stage_ranks(layout, stage) if rank in of_group] for stage in range(layout.pp))
    return any(spans_nodes(plan.uses.cluster, Ranks(sorted(part))) for part in on_stages if part)


def load_of(
    plan: Plan, micro_batch: int, a: Assignment, place: GroupPlace, seconds: float, slack: GroupSlack
) -> GroupLoad:
    """The load of one group in one micro-batch, with its place and its slack."""
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


def slack_by_micro_batch(seconds: dict[Key, float]) -> dict[Key, GroupSlack]:
    """Slack where ranks synchronise in every micro-batch: against its slowest group."""
    slowest = {
        micro_batch: max((s, group) for (other, group), s in seconds.items() if other == micro_batch)
        for micro_batch, _ in seconds
    }
    return {key: GroupSlack(slowest[key[0]][1], slowest[key[0]][0] - spent) for key, spent in seconds.items()}


def slack_over_step(ranks_of: dict[str, Ranks], seconds: dict[Key, float]) -> dict[Key, GroupSlack]:
    """Slack where ranks synchronise once a step: total float of each group against the rank that finishes last.

    `seconds` are in the order in which ranks work. A group starts when all its ranks are free, so a group can delay
    others with which it shares no rank.
    """
    finished: dict[int, float] = {}
    works: dict[int, float] = {}
    ends: dict[Key, float] = {}
    for key, spent in seconds.items():
        ranks = ranks_of[key[1]]
        ends[key] = max(finished.get(rank, 0.0) for rank in ranks) + spent
        finished |= dict.fromkeys(ranks, ends[key])
        works |= {rank: works.get(rank, 0.0) + spent for rank in ranks}
    last = max(finished.values(), default=0.0)
    critical = f"rank {min((rank for rank, end in finished.items() if end == last), default=0)}"
    deadline: dict[int, float] = {}  # latest time at which a rank must finish its earlier work
    slacks: dict[Key, GroupSlack] = {}
    for key in reversed(ends):
        ranks = ranks_of[key[1]]
        latest = min(deadline.get(rank, last) for rank in ranks)
        deadline |= dict.fromkeys(ranks, latest - seconds[key])
        longest = max(ranks, key=lambda rank: works[rank])
        slacks[key] = GroupSlack(critical, latest - ends[key], longest, works[longest])
    return slacks
