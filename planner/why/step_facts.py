"""Breaks a step down into seconds of the mean rank that add up to it, and counts its use of ranks and memory."""

from collections import Counter

from planner.costs import pricing_of
from planner.plan.descriptions import module_layout_text
from planner.plan.pack_fill import PackFill, pack_fill
from planner.plan.plan_file import Plan
from planner.scoring import Score, plan_doubt
from planner.specs.base import Spec
from planner.specs.parallelism import Sync
from planner.units import GIB
from planner.why.group_loads import GroupLoad, group_loads


class StepFacts(Spec, omit_defaults=False):
    """Seconds of the mean rank: compute + exchange_across + exchange_within + other_comm + idle = value."""

    value: float
    expected: float  # the value with the mean of the error that is its own (scoring/expected_seconds.py)
    bound: float
    bound_by: str
    compute: float
    fixed: float  # the part of compute that a micro-batch takes whatever its tokens
    exchange_across: float  # exposed, inside groups that cross nodes
    exchange_within: float
    other_comm: float  # exposed gathers, reductions and transfers
    idle: float
    unheld: float  # the part of idle in which the rank is in no group
    ranks: int
    sync: Sync
    micro_batches: int
    fewest_of_rank: int  # micro-batches of the rank that has fewest
    most_of_rank: int
    groups: str  # degrees of all groups: `64, 8×3`
    crossing_groups: int
    crossing_tokens: int
    tokens: int
    held: int  # of these, on the devices: offloaded activations count less
    room: int  # tokens that all groups together could hold; 0: not known
    packs: PackFill | None  # where the job limits the inputs of a rank
    peak_memory_gib: float
    layouts: dict[str, str]  # by module, as screens show it and `fix.layouts` takes it


def step_facts(plan: Plan, score: Score) -> StepFacts:
    """Break down the step of a plan of one step."""
    parts = score.timeline.breakdown()
    placed = group_loads(plan, score)
    across, within = exposed_by_reach(plan, score, placed)
    crossing = [load for load in placed if load.crosses_nodes]
    micro_batch_counts = rank_micro_batches(plan, placed)
    return StepFacts(
        value=score.step_seconds,
        expected=score.step_seconds * plan_doubt(plan),
        bound=min(score.bound.seconds, score.step_seconds),
        bound_by=score.bound.by,
        compute=parts.compute,
        fixed=fixed_seconds(plan, score),
        exchange_across=across,
        exchange_within=within,
        other_comm=max(0.0, parts.exposed_comm - across - within),
        idle=parts.idle,
        unheld=min(parts.idle, groupless_seconds(plan, placed)),
        ranks=plan.size,
        sync=plan.steps[0].sync,
        micro_batches=len(plan.steps[0].micro_batches),
        fewest_of_rank=min(micro_batch_counts),
        most_of_rank=max(micro_batch_counts),
        groups=degrees_text(placed),
        crossing_groups=len(crossing),
        crossing_tokens=sum(load.tokens for load in crossing),
        tokens=sum(load.tokens for load in placed),
        held=sum(load.held for load in placed),
        room=sum(load.room for load in placed),
        packs=pack_fill(plan),
        peak_memory_gib=score.peak_bytes / GIB,
        layouts={name: module_layout_text(plan, name, ask="") for name in plan.layouts},
    )


def exposed_by_reach(plan: Plan, score: Score, placed: list[GroupLoad]) -> tuple[float, float]:
    """Exposed communication in forward and backward, in seconds of the mean rank: across nodes, and within."""
    crossing = {load.group for load in placed if load.crosses_nodes}
    across = within = 0.0
    doing = score.timeline.rank_multiplicity()
    for event, count in zip(score.timeline.events, score.timeline.event_counts, strict=True):
        if event.phase in ("F", "B", "I", "W"):
            seconds = count * event.comm * doing(event.ranks) / plan.size
            if event.id.rpartition("/")[2] in crossing:
                across += seconds
            else:
                within += seconds
    return across, within


def rank_micro_batches(plan: Plan, placed: list[GroupLoad]) -> list[int]:
    """Number of micro-batches in which each rank works."""
    busy = {(rank, load.micro_batch) for load in placed for rank in load.ranks}
    counts = Counter(rank for rank, _ in busy)
    return [counts[rank] for rank in range(plan.size)]


def fixed_seconds(plan: Plan, score: Score) -> float:
    """Compute seconds of the mean rank if each forward and backward had a single token."""
    price, doing = pricing_of(plan).price, score.timeline.rank_multiplicity()
    total = 0.0
    for task, count in zip(score.tasks, score.timeline.event_counts, strict=True):
        if task.phase in ("F", "B", "I", "W") and task.sizes:
            cost = price(task.changed(sizes=(1,), items=task.items[:1], offload=()))
            total += count * (cost.value - cost.comm) * doing(task.ranks)
    return total / plan.size


def groupless_seconds(plan: Plan, placed: list[GroupLoad]) -> float:
    """Seconds during which the mean rank is in no group: by micro-batch, or over the step if ranks sync once a step."""
    if plan.steps[0].sync != "micro_batch":
        without = plan.size - len({rank for load in placed for rank in load.ranks})
        return max(load.rank_seconds or 0.0 for load in placed) * without / plan.size
    total = 0.0
    for micro_batch in {load.micro_batch for load in placed}:
        mine = [load for load in placed if load.micro_batch == micro_batch]
        busy = {rank for load in mine for rank in load.ranks}
        total += max(load.seconds for load in mine) * (plan.size - len(busy))
    return total / plan.size


def degrees_text(placed: list[GroupLoad]) -> str:
    """Degrees of all groups in all micro-batches: `64, 8×3`."""
    counts = Counter(load.degree for load in placed)
    return ", ".join(f"{d}×{n}" if n > 1 else str(d) for d, n in sorted(counts.items(), reverse=True))
