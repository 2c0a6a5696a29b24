"""What a plan is worth, from nothing but the plan: value, bound, breakdown and memory, computed anew."""

from collections.abc import Callable
from dataclasses import dataclass

from planner.costs.memory import activation_bytes, memory_cap, state_bytes
from planner.costs.pricing import Pricing, pricing_of
from planner.errors import Infeasible
from planner.plan.expand import expand
from planner.plan.model import Breakdown, Outcome, Plan, Prediction, Step
from planner.plan.task import Task
from planner.simulate import Memory, Timeline, memory_use, simulate
from planner.specs.base import changed
from planner.specs.cluster import kind_of
from planner.units import GIB
from planner.verify.bounds import Bound, step_bound

CLOSED = 1e-9  # a gap below this is none


@dataclass(frozen=True, slots=True)
class Score:
    """One step of a plan, priced again."""

    tasks: tuple[Task, ...]
    timeline: Timeline
    memory: Memory
    bound: Bound

    @property
    def value(self) -> float:
        return self.timeline.step_seconds


def score(plan: Plan, number: int = 0) -> Score:
    """Expand, price, simulate and bound one step."""
    pricing = pricing_of(plan)
    tasks = expand(plan, number)
    timeline = simulate(tasks, pricing.price)
    memory = memory_use(timeline, tasks, activations(plan, pricing), states(plan))
    return Score(tasks, timeline, memory, step_bound(plan, number, pricing, timeline))


def activations(plan: Plan, pricing: Pricing) -> Callable[[Task], float]:
    """Bytes that a forward leaves on each of its ranks."""

    def held(task: Task) -> float:
        costs, module = pricing.prices.modules[task.module], plan.uses.models[task.module]
        ways = task.degree * plan.layouts[task.module].mesh.get("tp", 1)
        last = task.layers[-1] == module.layers - 1
        return activation_bytes(costs, len(task.layers), last, task.tokens / ways)

    return held


def states(plan: Plan) -> Callable[[int], float]:
    """Bytes of weights, gradients and optimizer states on a rank."""
    of_module = {name: state_bytes(plan.uses.models[name], layout) for name, layout in plan.layouts.items()}

    def held(rank: int) -> float:
        return sum(size for name, size in of_module.items() if rank in plan.layouts[name].ranks)

    return held


def outcome(scores: list[Score], effort: str) -> Outcome:
    """Over all steps: what they are worth together, and what bounds them."""
    value, bound = sum(s.value for s in scores), sum(s.bound.seconds for s in scores)
    gap = (value - bound) / bound if bound > 0 else 0.0
    return Outcome(
        status="optimal" if gap < CLOSED else "feasible",
        value=tidy(value),
        bound=tidy(min(bound, value)),
        gap=tidy(max(gap, 0.0)),
        bound_by="+".join(sorted({s.bound.by for s in scores})),
        effort=effort,
    )


def prediction(scores: list[Score]) -> Prediction:
    """Over all steps: seconds and breakdown summed, the highest peak, spread and share weighted by time."""
    total = sum(s.value for s in scores) or 1.0
    parts = [s.timeline.breakdown() for s in scores]
    return Prediction(
        step_seconds=tidy(sum(s.value for s in scores)),
        spread=tidy(sum(s.value * s.timeline.spread for s in scores) / total),
        peak_memory_gib=tidy(max(max(s.memory.peaks) for s in scores) / GIB),
        breakdown=Breakdown(
            compute=tidy(sum(p.compute for p in parts)),
            exposed_comm=tidy(sum(p.exposed_comm for p in parts)),
            idle=tidy(sum(p.idle for p in parts)),
        ),
        measured_share=tidy(sum(s.value * s.timeline.measured_share for s in scores) / total),
    )


def tidy(number: float) -> float:
    """Nine significant digits: what a file needs, and nothing that differs between machines."""
    return float(f"{number:.9g}")


def scored(plan: Plan, effort: str) -> Plan:
    """The plan with outcome and prediction as this module computes them, per step when there are several."""
    scores = [score(plan, number) for number in range(len(plan.steps))]
    steps: list[Step] = list(plan.steps)
    if len(steps) > 1:
        steps = [
            changed(step, outcome=outcome([s], effort), prediction=prediction([s]))
            for step, s in zip(steps, scores, strict=True)
        ]
    plan = changed(plan, outcome=outcome(scores, effort), prediction=prediction(scores), steps=tuple(steps))
    require_memory(plan, scores)
    return plan


def require_memory(plan: Plan, scores: list[Score]) -> None:
    """Raises Infeasible when a rank holds more than its device allows. The job's own limit in tokens replaces this."""
    if plan.uses.limits.tokens_per_rank is not None:
        return
    for s in scores:
        for rank, peak in enumerate(s.memory.peaks):
            cap = memory_cap(plan.uses.devices[kind_of(plan.uses.cluster, rank)], plan.uses.limits)
            if peak > cap:
                raise Infeasible(
                    f"rank {rank} would hold {peak / GIB:.1f} GiB, its device allows {cap / GIB:.1f} GiB",
                    where="memory",
                    fix="fewer tokens per rank, recomputation, a higher ZeRO stage, or more ranks",
                )
