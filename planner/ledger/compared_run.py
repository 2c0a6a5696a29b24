"""A run of a plan: what was measured of each step, beside what was predicted of it; GPU memory by use.

The parts of a step's memory that torch counts are composed from the parts of the plan's memory model.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import TYPE_CHECKING

from planner.ledger.slow_ranks import ComparedRanks, compare_ranks, work_of_ranks
from planner.ledger.work_kinds import KindSeconds, MeasuredTask, measured_timeline, seconds_by_kind
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.scoring import Score, score
from planner.simulate import Timeline, TracedStep

if TYPE_CHECKING:
    from planner.launch import SentBytes
    from planner.runtime import (
        FeatureCounts,
        ParityErrors,
        ParityTolerance,
        PlanningOverlap,
        RankMemory,
        RunResult,
        StepResult,
        StopReason,
    )


@dataclass(frozen=True, slots=True)
class PeakMemoryUse:
    """Memory of one rank in the step of its measured peak."""

    rank: int
    measured: "RankMemory"
    predicted: "RankMemory | None"  # of the same step; None: the plan has no prices


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Predicted and measured bytes of one use."""

    name: str
    predicted: float | None
    measured: float


def peak_memory_use(
    plan: Plan, steps: Sequence[tuple[Sequence["RankMemory"], Score | None]]
) -> tuple[PeakMemoryUse, ...]:
    """Every rank at its peak over the steps in which memory was measured; empty if it never was."""
    counted = [(ranks, predicted_memory(plan, score) if score else None) for ranks, score in steps if ranks]
    most = []
    for rank in range(plan.size if counted else 0):
        ranks, expected = max(counted, key=lambda step: step[0][rank].peak)
        most.append(PeakMemoryUse(rank, ranks[rank], expected[rank] if expected else None))
    return tuple(most)


def predicted_memory(plan: Plan, score: Score) -> "tuple[RankMemory, ...]":
    """Predicted memory of each rank in one step of the plan."""
    from planner.runtime import RankMemory

    memory, holding = [], score.plan_memory
    for rank, peak in enumerate(score.memory.peaks):
        parts, share = holding.static_footprint(rank), 1.0 + holding.accounting(rank).fragmentation
        held = float(parts.weights + parts.optimizer)
        passes = (peak - float(parts.outside_allocator)) / share
        update = float(parts.states + parts.update + parts.workspace)
        memory.append(RankMemory(held, passes, update, max(passes, update) * share, float(parts.outside_allocator)))
    return tuple(memory)


def fullest_rank(ranks: Sequence[PeakMemoryUse]) -> PeakMemoryUse:
    """The rank of the highest measured peak, the first of equals."""
    return max(ranks, key=lambda rank: rank.measured.peak)


def memory_uses(rank: PeakMemoryUse) -> Iterator[MemoryUse]:
    """Bytes at the start of the step, what passes and update add, and what the allocator does not give out."""
    expected = bytes_by_use(rank.predicted) if rank.predicted else {}
    for name, measured in bytes_by_use(rank.measured).items():
        yield MemoryUse(name, expected.get(name), measured)


def bytes_by_use(memory: "RankMemory") -> dict[str, float]:
    """Bytes by use."""
    return {
        "as the step begins": memory.held,
        "passes, on top of it": memory.passes - memory.held,
        "update, on top of it": memory.update - memory.held,
        "most at once": memory.peak,
        "reserved and unused": memory.reserved - memory.peak,
        "outside of the allocator": memory.outside,
    }


NO_RANKS = compare_ranks((), ())


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run of a plan: what was measured, beside what was predicted."""

    plan: Plan
    machine: str
    losses: tuple[float, ...]  # per step, per token
    tokens_per_second: float
    step_seconds: float  # median
    predicted_step_seconds: float | None  # None: the plan has no prices
    kinds: list[KindSeconds]  # of the measured steps
    timelines: tuple[Timeline, ...]  # one per measured step: the last ones
    traced: tuple[TracedStep, ...]  # the same with their tasks
    plannings: "tuple[PlanningOverlap, ...]"  # the steps that were planned while it lasted
    verified: "ParityErrors | None"
    peak_bytes: int | None = None  # of tensors on the fullest rank; None: not counted, as on the CPU
    stop_reason: "StopReason" = "steps"  # why it was over
    tolerance: "ParityTolerance | None" = None  # of what was verified
    memory: tuple[PeakMemoryUse, ...] = ()  # by rank; none where torch does not count it: on the CPU
    sent_bytes: "tuple[SentBytes, ...]" = ()  # by rank, in the last step
    steps_before: int = 0  # steps of the checkpoint that it resumed
    features: "tuple[FeatureCounts, ...]" = ()  # by step, of items of encoders whose outputs are kept; empty: of none
    ranks: ComparedRanks = NO_RANKS  # where steps are predicted


FollowedSteps = Iterable[
    tuple[Plan, int]
]  # of each step of a run, the plan that it followed, and the number of its step


def compare_run(
    plan: Plan,
    scores: Sequence[Score],
    result: "RunResult",
    followed_steps: FollowedSteps,
    tolerance: "ParityTolerance | None",
) -> ComparedRun:
    """A run's result beside the scores of the plan's steps (none: the plan has no prices)."""
    predicted, seconds, traced, memory, work = [], [], [], [], []
    for at, (step, (followed, number)) in enumerate(
        zip(result.steps, followed_steps, strict=True), result.steps_before
    ):
        expected = (scores[number] if followed is plan else score(followed)) if scores else None
        if expected:
            predicted.append(expected.timeline)
            seconds.append(expected.step_seconds)
        if not step.measured:  # an early step: only the last ones are kept
            continue
        memory.append((step.memory, expected))
        if expected and step.work:
            work.append((step.work, work_of_ranks(expected.timeline)))
        of_plan = number if followed is plan else at  # steps planned during the run are beyond the plan's own
        traced.append(traced_step(followed, number, step, of_plan, at))
    kinds = seconds_by_kind(predicted[len(predicted) - len(traced) :], [step.timeline for step in traced])
    return ComparedRun(
        plan=plan,
        machine=result.machine,
        losses=tuple(step.loss for step in result.steps),
        tokens_per_second=sum(step.tokens for step in result.steps) / sum(step.whole_seconds for step in result.steps),
        step_seconds=median(step.whole_seconds for step in result.steps),
        predicted_step_seconds=median(seconds) if seconds else None,
        kinds=with_loader(with_tables(kinds, scores, result) if plan.embeddings else kinds, plan, scores, result),
        timelines=tuple(step.timeline for step in traced),
        traced=tuple(traced),
        plannings=tuple(step.planning for step in result.steps if step.planning),
        verified=result.verify,
        peak_bytes=max((peak for step in result.steps for peak in step.peak_bytes if peak), default=None),
        stop_reason=result.stop_reason,
        tolerance=tolerance,
        memory=peak_memory_use(plan, memory),
        sent_bytes=result.steps[-1].sent_bytes,
        steps_before=result.steps_before,
        ranks=compare_ranks(*zip(*work, strict=True)) if work else NO_RANKS,
        features=tuple(step.features for step in result.steps)
        if any(any(step.features) for step in result.steps)
        else (),
    )


def with_tables(kinds: list[KindSeconds], scores: Sequence[Score], result: "RunResult") -> list[KindSeconds]:
    """Kinds of work of a plan whose embedding tables are in no task: measured, they are in the kind of who waits."""
    loads = [each.tables for each in scores if each.tables]
    expected = mean(float(each.seconds.mean()) for each in loads) if loads else 0.0
    found = mean(step.table_seconds for step in result.steps if step.measured)
    *others, waits = kinds
    beside = KindSeconds("embedding tables", expected, found)
    return [*others, beside, replace(waits, measured=max(0.0, waits.measured - found))]


def with_loader(
    kinds: list[KindSeconds], plan: Plan, scores: Sequence[Score], result: "RunResult"
) -> list[KindSeconds]:
    """Kinds of work, and what steps of a plan with a loader waited for it."""
    if plan.loader is None:
        return kinds
    expected = mean(each.loading for each in scores) if scores else 0.0
    return [*kinds, KindSeconds("wait for the data loader", expected, median(step.loading for step in result.steps))]


def traced_step(followed: Plan, number: int, step: "StepResult", of_plan: int, at: int) -> TracedStep:
    """One measured step as a timeline with its tasks."""
    records = [MeasuredTask(m.id, m.rank, m.start, m.end, m.comm) for m in step.measured]
    tasks = expand(followed, number)  # of every group, also of those that do alike
    timeline = measured_timeline(records, tasks, followed.size, step.seconds)
    return TracedStep(timeline, tasks, "measured", None, of_plan, at)
