"""What a plan is worth, from nothing but the plan: value, bound, breakdown and memory, computed anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from planner.costs.overlapped import overlapped
from planner.costs.pricing import pricing_of
from planner.errors import Infeasible
from planner.plan.alike import NONE, WHOLE, alike_groups
from planner.plan.expand import expand
from planner.plan.join import tidy
from planner.plan.model import Breakdown, Outcome, Plan, Prediction
from planner.plan.task import Task
from planner.simulate import Memory, Timeline, simulate
from planner.specs.base import changed
from planner.specs.overlap import AS_PRICED, Overlap
from planner.units import GIB, percent
from planner.verify.bounds import Bound, step_bound
from planner.verify.held import Holding, exceeds
from planner.verify.offloaded import require_hidden

CLOSED = 1e-6  # a gap below this is none: closer than integer programs are solved


@dataclass(frozen=True, slots=True)
class Score:
    """One step of a plan, priced again."""

    tasks: tuple[Task, ...]  # of all groups, or of very many one of each kind (`timeline.like`)
    timeline: Timeline
    memory: Memory
    holding: Holding
    bound: Bound

    @property
    def fullest(self) -> int:
        """The rank that uses most of what it may hold, and most likely runs out of memory; the first of these."""
        return max(range(len(self.memory.peaks)), key=lambda rank: (self.share(rank), -rank))

    def share(self, rank: int) -> float:
        """Of what it may hold, what it holds at its fullest."""
        allowed = self.holding.allowed(rank)
        return self.memory.peaks[rank] / allowed if allowed > 0 else inf

    @property
    def peak(self) -> float:
        """Bytes on the fullest rank."""
        return self.memory.peaks[self.fullest]

    @property
    def chance(self) -> float:
        """Of running out of memory, on that rank."""
        return self.holding.chance(self.fullest, self.peak)

    @property
    def value(self) -> float:
        return self.timeline.step_seconds


def score(plan: Plan, number: int = 0, overlap: Overlap = AS_PRICED) -> Score:
    """Expand, price, simulate and bound one step; `overlap`: which exchanges run beside compute, if not as priced."""
    plan = overlapped(plan, overlap)
    pricing = pricing_of(plan)
    others = alike_groups(plan, number) if plan.size > WHOLE else NONE
    tasks = expand(plan, number, others.ranks)
    require_hidden(plan, number, pricing, tasks)
    timeline, holding = (
        simulate(tasks, pricing.among(tasks), plan.size, others, overlap.holding),
        Holding(plan, pricing),
    )
    memory = holding.over(timeline, tasks)
    return Score(tasks, timeline, memory, holding, step_bound(plan, number, pricing, tasks, timeline))


def tightest(scores: Sequence[Score]) -> Score:
    """Of several steps the one whose fullest rank has least left."""
    return max(scores, key=lambda each: each.share(each.fullest))


def outcome(s: Score, effort: str) -> Outcome:
    """What a step is worth, and what bounds it."""
    value, bound = s.value, min(s.bound.seconds, s.value)
    gap = (value - bound) / bound if bound > 0 else 0.0
    return Outcome(
        status="optimal" if gap < CLOSED else "feasible",
        value=tidy(value),
        bound=tidy(bound),
        gap=tidy(gap),
        bound_by=s.bound.by,
        effort=effort,
    )


def prediction(s: Score) -> Prediction:
    """Time, memory and where the time goes."""
    parts = s.timeline.breakdown()
    return Prediction(
        step_seconds=tidy(s.value),
        spread=tidy(s.timeline.spread),
        peak_memory_gib=tidy(s.peak / GIB),
        fullest_rank=s.fullest,
        oom_chance=tidy(s.chance),
        breakdown=Breakdown(compute=tidy(parts.compute), exposed_comm=tidy(parts.exposed_comm), idle=tidy(parts.idle)),
        measured_share=tidy(s.timeline.measured_share),
    )


def scored(plan: Plan, effort: str) -> Plan:
    """A plan of one step with outcome and prediction as this module computes them. Raises Infeasible."""
    s = score(plan)
    require_memory(plan, s)
    return changed(plan, outcome=outcome(s, effort), prediction=prediction(s))


def require_memory(plan: Plan, s: Score) -> None:
    """Raises Infeasible when a rank holds more than its device allows. The job's own limit in tokens replaces this."""
    if plan.uses.limits.tokens_per_rank is not None:
        return
    for rank, peak in enumerate(s.memory.peaks):
        allowed = s.holding.allowed(rank)
        if exceeds(peak, allowed):
            raise Infeasible(
                f"rank {rank} would hold {peak / GIB:.1f} GiB, and may hold {allowed / GIB:.1f} GiB: it would run out "
                f"of memory with a chance of {percent(s.holding.chance(rank, peak))}",
                where="memory",
                fix="fewer tokens per rank, recomputation, a higher ZeRO stage, or more ranks",
            )
