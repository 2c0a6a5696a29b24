"""The score of a plan, computed from the plan alone: seconds, lower bound, breakdown and memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from planner.costs import Pricing, pricing_of, with_loading, with_overlap
from planner.costs.tables import TableLoads
from planner.errors import Infeasible
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Breakdown, Outcome, Plan, Prediction
from planner.plan.tasks.expand import expand
from planner.plan.tasks.task_table import TaskTable
from planner.scoring.bounds.loader_bound import bound_with_loader
from planner.scoring.bounds.plan_space import plan_space_seconds
from planner.scoring.bounds.step_bounds import SPACE, Bound, bounds_same_work, step_bound
from planner.scoring.host_memory import HostMemory, host_memory, require_host_memory
from planner.scoring.offload_check import require_hidden_offload
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.scoring.possible import require_links, require_peak, require_possible
from planner.scoring.step_simulation import represented_groups, simulated_step
from planner.scoring.table_score import breakdown_with_tables
from planner.scoring.work_at_peak import link_seconds
from planner.simulate import MemoryCurves, TaskSpans, Timeline
from planner.specs.base import with_fields
from planner.specs.framework.overlap import AS_PRICED, Overlap
from planner.units import GIB, percent

OPTIMAL_GAP = 1e-6  # a smaller relative gap counts as optimal: integer programs are solved no closer


@dataclass(frozen=True)
class Score:
    """One step of a plan, priced, simulated and bounded from its own numbers.

    Of many identical groups one is simulated (`timeline.representative_rank`).
    """

    tasks: TaskTable  # those that were simulated
    timeline: Timeline
    memory: MemoryCurves
    plan_memory: PlanMemory
    bound: Bound
    loading: float = 0.0  # seconds that the step is longer for what its loader needs

    @cached_property
    def fullest_rank(self) -> int:
        """The rank with the greatest share of its allowed memory in use; the first of equal ones."""
        return max(range(len(self.memory.peaks)), key=lambda rank: (self.memory_share(rank), -rank))

    @cached_property
    def breakdown(self) -> Breakdown:
        """Seconds of the mean rank by what it does."""
        found = breakdown_with_tables(self.timeline.breakdown(), self.tables)
        return with_fields(found, idle=found.idle + self.loading) if self.loading else found

    @property
    def tables(self) -> TableLoads | None:
        """What embedding tables take beside the timeline, which is the dense part's."""
        return self.plan_memory.table_loads

    def memory_share(self, rank: int) -> float:
        """Peak bytes of a rank over its allowed bytes."""
        allowed = self.plan_memory.allowed_bytes(rank)
        return self.memory.peaks[rank] / allowed if allowed > 0 else inf

    @cached_property
    def host_memory(self) -> HostMemory | None:
        """The fullest host; None where nothing is in the memory of any."""
        return host_memory(self.plan_memory, self.spans, self.tasks)

    @property
    def spans(self) -> TaskSpans:
        """When its tasks ran."""
        return TaskSpans.of(self.timeline)

    @property
    def peak_bytes(self) -> float:
        """Bytes on the fullest rank."""
        return self.memory.peaks[self.fullest_rank]

    @property
    def oom_chance(self) -> float:
        """Probability that the fullest rank runs out of memory."""
        return self.plan_memory.oom_chance(self.fullest_rank, self.peak_bytes)

    @property
    def step_seconds(self) -> float:
        """Seconds of the step."""
        return self.trained_seconds + self.loading

    @property
    def trained_seconds(self) -> float:
        """Seconds of the step once its batches are there."""
        return self.timeline.step_seconds + (float(self.tables.seconds.max()) if self.tables else 0.0)


def score(plan: Plan, number: int = 0, overlap: Overlap = AS_PRICED) -> Score:
    """Expand, price, simulate and bound one step; `overlap`: exchanges that run beside compute, if not as priced."""
    plan = with_overlap(plan, overlap)
    pricing = pricing_of(plan)
    tasks, timeline = simulated_step(plan, number, pricing, represented_groups(plan, number), overlap)
    require_hidden_offload(plan, number, pricing, tasks)
    plan_memory = PlanMemory(plan, pricing)
    memory = plan_memory.over_step(TaskSpans.of(timeline), tasks)
    bound = step_bound(plan, number, pricing, tasks, timeline)
    found = Score(tasks, timeline, memory, plan_memory, bound)
    if plan.loader:
        trained = found.trained_seconds
        loading = with_loading(plan, number, trained) - trained
        found = replace(found, bound=bound_with_loader(plan, number, bound), loading=loading)
    require_sound(plan, number, pricing, found)
    return found


def require_sound(plan: Plan, number: int, pricing: Pricing, s: Score) -> None:
    """Raises Impossible for a figure of a step that cannot be, InputError where the plan's prices say so."""
    peaks = s.memory.peaks
    require_possible({"seconds of the step": s.step_seconds}, plan.name)
    require_possible({"bytes of a rank": min(peaks), "bytes of all ranks": sum(peaks)}, plan.name)
    require_possible({"chance of running out of memory": s.oom_chance}, plan.name, whole=1.0)
    if s.memory_share(s.fullest_rank) <= 1.0:  # bounds are of what fits
        require_possible({"seconds of the bound": s.bound.seconds}, plan.name, s.step_seconds, OPTIMAL_GAP)
    require_peak(plan, number, pricing, s.step_seconds, s.breakdown.compute)
    require_links(plan, s.timeline.step_seconds, link_seconds(plan, s.tasks))


def fullest_score(scores: Sequence[Score]) -> Score:
    """The score of the step whose fullest rank has least memory left."""
    return max(scores, key=lambda each: each.memory_share(each.fullest_rank))


def in_memory(scores: Sequence[Score]) -> bool:
    """Whether every rank stays within its allowed memory at every step, and every host."""
    ranks_fit = not any(
        exceeds_memory(peak, found.plan_memory.allowed_bytes(rank))
        for found in scores
        for rank, peak in enumerate(found.memory.peaks)
    )
    host = fullest_host(scores)
    return ranks_fit and (host is None or host.fits)


def fullest_host(scores: Sequence[Score]) -> HostMemory | None:
    """The fullest host of several steps; None where nothing is in the memory of any."""
    hosts = (each.host_memory for each in scores)
    return max((host for host in hosts if host), key=lambda host: host.held / max(1.0, host.allowed), default=None)


def outcome_of(s: Score, effort: str) -> Outcome:
    """Seconds and lower bound of a step, as the outcome of a plan."""
    value, bound = s.step_seconds, min(s.bound.seconds, s.step_seconds)
    gap = (value - bound) / bound if bound > 0 else 0.0
    return Outcome(
        status="optimal" if gap < OPTIMAL_GAP else "feasible",
        value=round_digits(value),
        bound=round_digits(bound),
        gap=round_digits(gap),
        bound_by=s.bound.by,
        effort=effort,
    )


def over_space(chosen: Plan, seconds: float) -> Plan:
    """The plan with a bound over all plans of the space that it was chosen from; its own layouts' says less."""
    return with_fields(chosen, outcome=with_bound(chosen.outcome, seconds, SPACE))


def with_bound(outcome: Outcome, seconds: float, by: str) -> Outcome:
    """An outcome in seconds with a bound, and the gap to it; optimal where the plan itself is not above it."""
    of = bounded_value(with_fields(outcome, bound_by=by))
    least = round_digits(min(seconds, of))
    gap = round_digits((of - least) / least if least > 0 else 0.0)
    status = "optimal" if outcome.value - least < OPTIMAL_GAP * least else "feasible"
    return with_fields(outcome, status=status, bound=least, gap=gap, bound_by=by)


def bounded_value(outcome: Outcome) -> float:
    """The value that bound and gap are of: that of the quickest layouts that were found; where the bound is over orders
    of the same work, the plan's own.
    """
    own = outcome.quickest is None or bounds_same_work(outcome.bound_by)
    return outcome.value if own or outcome.quickest is None else outcome.quickest.value


def over_joint_space(plan: Plan) -> Plan:
    """A priced plan of several modules, of one step, with the bound over all plans of its job; as it is where the bound
    knows no layout that fits, or groups of samples have degrees of their own.
    """
    seconds = inf if plan.uses.degrees else plan_space_seconds(plan)
    return over_space(plan, seconds) if seconds < inf else plan


def prediction_of(s: Score) -> Prediction:
    """Seconds, memory and breakdown of a step, as the prediction of a plan."""
    parts = s.breakdown
    return Prediction(
        step_seconds=round_digits(s.step_seconds),
        spread=round_digits(s.timeline.spread),
        peak_memory_gib=round_digits(s.peak_bytes / GIB),
        fullest_rank=s.fullest_rank,
        oom_chance=round_digits(s.oom_chance),
        breakdown=Breakdown(
            compute=round_digits(parts.compute),
            exposed_comm=round_digits(parts.exposed_comm),
            idle=round_digits(parts.idle),
        ),
        measured_share=round_digits(s.timeline.measured_share * s.timeline.step_seconds / (s.step_seconds or 1.0)),
    )


def with_score(plan: Plan, effort: str) -> Plan:
    """A plan of one step with its outcome and prediction. Raises Infeasible when it does not fit into memory."""
    s = score(plan)
    require_memory(plan, s)
    return with_fields(plan, outcome=outcome_of(s, effort), prediction=prediction_of(s))


def require_memory(plan: Plan, s: Score) -> None:
    """Raise Infeasible when a rank holds more than its device allows, naming the one that is farthest beyond that; the
    job's own limit in tokens replaces this. And when the ranks of a node have more in its host's memory than there is.
    """
    require_peaks(plan, s.plan_memory, s.memory.peaks)
    require_host_memory(s.plan_memory, s.spans, s.tasks)


def require_memory_in_order(plan: Plan) -> None:
    """Raise Infeasible as `require_memory` does, of a plan of one step that has not been simulated."""
    plan_memory, tasks = PlanMemory(plan, pricing_of(plan)), expand(plan)
    if plan.uses.limits.tokens_per_rank is None:
        require_peaks(plan, plan_memory, plan_memory.in_order(tasks).peaks)
    require_host_memory(plan_memory, plan_memory.one_by_one(tasks), tasks)


def require_peaks(plan: Plan, plan_memory: PlanMemory, peaks: Sequence[float]) -> None:
    """Raise Infeasible when the peak of a rank, in bytes, is more than its device allows."""
    if plan.uses.limits.tokens_per_rank is not None:
        return
    allowed = [plan_memory.allowed_bytes(rank) for rank in range(plan.size)]
    beyond = [rank for rank, peak in enumerate(peaks) if exceeds_memory(peak, allowed[rank])]
    if beyond:
        rank = max(beyond, key=lambda each: (peaks[each] - allowed[each], -each))
        peak = peaks[rank]
        modules = " and ".join(f"`{name}`" for name, layout in plan.layouts.items() if rank in layout.ranks)
        raise Infeasible(
            f"rank {rank}{f' of {modules}' if len(plan.layouts) > 1 else ''} would hold {peak / GIB:.1f} GiB, and may "
            f"hold {allowed[rank] / GIB:.1f} GiB: it would run out of memory with a chance of "
            f"{percent(plan_memory.oom_chance(rank, peak))}",
            where="memory",
            fix="fewer tokens per rank, recomputation, a higher ZeRO stage, or more ranks",
        )


def states_error(plan_memory: PlanMemory) -> Infeasible:
    """The error of modules that leave no room on rank 0 whatever it works on."""
    names = " and ".join(f"`{name}`" for name in plan_memory.plan.layouts)
    held, allowed = (each / GIB for each in (plan_memory.static_bytes(0), max(plan_memory.allowed_bytes(0), 0.0)))
    return Infeasible(
        f"states of {names}, context and buffers take {held:.1f} GiB of each rank, which may use {allowed:.1f} GiB",
        where="memory (what binds)",
        fix="more ranks, a higher ZeRO stage, or a smaller memory_margin",
    )


def task_seconds(scores: Iterable[Score]) -> dict[str, float]:
    """What tasks of some steps are predicted to take, by id: the longest where several ranks or steps have one."""
    seconds: dict[str, float] = {}
    for each in scores:
        for event in each.timeline.events:
            seconds[event.id] = max(seconds.get(event.id, 0.0), event.end - event.start)
    return seconds
