"""The score of a plan, computed from the plan alone: seconds, lower bound, breakdown and memory."""

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

CLOSED = 1e-6  # a smaller relative gap counts as optimal: integer programs are solved no closer


@dataclass(frozen=True, slots=True)
class Score:
    """One step of a plan, priced, simulated and bounded anew."""

    tasks: tuple[Task, ...]  # of all groups, or one of each kind where there are many (`timeline.like`)
    timeline: Timeline
    memory: Memory
    holding: Holding
    bound: Bound

    @property
    def fullest(self) -> int:
        """The rank with the greatest share of its allowed memory in use; the first of equal ones."""
        return max(range(len(self.memory.peaks)), key=lambda rank: (self.share(rank), -rank))

    def share(self, rank: int) -> float:
        """Peak bytes of a rank over its allowed bytes."""
        allowed = self.holding.allowed(rank)
        return self.memory.peaks[rank] / allowed if allowed > 0 else inf

    @property
    def peak(self) -> float:
        """Bytes on the fullest rank."""
        return self.memory.peaks[self.fullest]

    @property
    def chance(self) -> float:
        """Probability that the fullest rank runs out of memory."""
        return self.holding.chance(self.fullest, self.peak)

    @property
    def value(self) -> float:
        """Seconds of the step."""
        return self.timeline.step_seconds


def score(plan: Plan, number: int = 0, overlap: Overlap = AS_PRICED) -> Score:
    """Expand, price, simulate and bound one step; `overlap`: exchanges that run beside compute, if not as priced."""
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
    """The score of the step whose fullest rank has least memory left."""
    return max(scores, key=lambda each: each.share(each.fullest))


def outcome(s: Score, effort: str) -> Outcome:
    """Seconds and lower bound of a step, as the outcome of a plan."""
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
    """Seconds, memory and breakdown of a step, as the prediction of a plan."""
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
    """A plan of one step with its outcome and prediction. Raises Infeasible when it does not fit into memory."""
    s = score(plan)
    require_memory(plan, s)
    return changed(plan, outcome=outcome(s, effort), prediction=prediction(s))


def require_memory(plan: Plan, s: Score) -> None:
    """Raise Infeasible when a rank holds more than its device allows; the job's own limit in tokens replaces this."""
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
