"""The head of a plan's page: subtitle, four numbers, and the sentence on its bound; and the same as a JSON answer."""

from collections.abc import Sequence

from planner.costs import STEP_SECONDS
from planner.plan.descriptions import all_items_text
from planner.plan.plan_file import Plan
from planner.report.page import Figure
from planner.report.page_step import PageStep, task_counts
from planner.scoring import (
    BOUNDS,
    OPTIMAL_GAP,
    SPACE,
    Score,
    bounds_same_work,
    fullest_score,
    mean_objective_value,
    objective_of,
    sample_modules,
    sample_tokens,
    step_bounds,
)
from planner.units import GIB, byte_size, duration, percent, plural


def subtitle(plan: Plan) -> str:
    kinds = ", ".join(f"{kind.count} × {kind.kind}" for kind in plan.ranks)
    micro_batches = plural(sum(len(step.micro_batches) for step in plan.steps), "micro-batch")
    steps = f"{len(plan.steps)} steps, " if len(plan.steps) > 1 else ""
    return f"{plan.made.strategy} on {kinds} · {steps}{micro_batches} · {all_items_text(plan)}"


def head_numbers(plan: Plan, scores: Sequence[Score]) -> tuple[Figure, ...]:
    """The four numbers: step time, distance from the bound, memory, tokens per second."""
    values, count = [score.step_seconds for score in scores], len(scores)
    mean = sum(values) / count
    by, bound = step_bounds(plan, scores)
    spread = max(score.timeline.spread for score in scores)
    full = fullest_score(scores)
    cap = full.plan_memory.allowed_bytes(full.fullest_rank)
    gap = relative_gap(mean, bound)
    distance = f"≤ {percent(gap)}" if gap > OPTIMAL_GAP else "0 %"
    of_order = bounds_same_work(by)
    over = f"{duration(min(values))} to {duration(max(values))}, " if count > 1 else ""
    goal = objective_of(plan)
    also = "" if plan.outcome.objective == STEP_SECONDS else f"{goal.formatted(mean_objective_value(plan, mean))}, "
    least = goal.formatted(mean_objective_value(plan, bound))
    limit = plan.uses.limits.tokens_per_rank
    allowed = f"of {byte_size(cap)} allowed on rank {full.fullest_rank}, simulated" + (
        f"; the job's limit: {limit:,} tokens" if limit else ""
    )
    of = f"of {' and '.join(sample_modules(plan))}, " if len(plan.layouts) > 1 else ""
    rate_note = f"{of}{plural(plan.size, 'rank')}, simulated"
    return (
        Figure(
            "Mean step" if count > 1 else "Step", duration(mean), f"{also}{over}± {percent(spread)} (80 %), simulated"
        ),
        Figure(
            f"Above the {'best order' if of_order else 'bound'}",
            distance,
            f"bound {least}" if by == SPACE else f"bound {least}, by {by.replace('+', ', ')}",
        ),
        Figure("Fullest rank", byte_size(full.peak_bytes), allowed),
        Figure("Tokens per second", f"{sample_tokens(plan, range(count)) / (sum(values) or 1.0):,.0f}", rate_note),
    )


def summary(plan: Plan, scores: Sequence[Score], measured: Sequence[PageStep]) -> dict[str, object]:
    full = fullest_score(scores)
    return {
        "page": "plan",
        "plan": plan.name,
        "ranks": plan.size,
        "steps": len(scores),
        "tasks": round(sum(sum(task_counts(score.timeline)) for score in scores)),
        "step_seconds": sum(score.step_seconds for score in scores) / len(scores),
        "objective": plan.outcome.objective,
        "unit": objective_of(plan).unit,
        "bound": mean_objective_value(plan, step_bounds(plan, scores)[1]),
        "peak_memory_gib": full.peak_bytes / GIB,
        "allowed_gib": full.plan_memory.allowed_bytes(full.fullest_rank) / GIB,
        "fullest_rank": full.fullest_rank,
        "measured_step_seconds": [shown.timeline.step_seconds for shown in measured],
    }


def relative_gap(value: float, bound: float) -> float:
    """Relative distance of a value from its lower bound."""
    return max(0.0, (value - bound) / bound) if bound > 0 else 0.0


def bound_text(value: float, bound: float, by: str, over: str = "") -> str:
    """A sentence that explains the bound and its proof to newcomers; `over`: what it is over, where that is not all."""
    of_order = bounds_same_work(by)
    best = (
        "any other order of the same work" if of_order else f"any of {over}" if over else "any other plan of this job"
    )
    proof = "; and ".join(BOUNDS[name].proof for name in by.split("+") if name in BOUNDS) or by
    if relative_gap(value, bound) < OPTIMAL_GAP:
        return f"{best} takes at least as long: {proof}."
    gained = percent(relative_gap(value, bound))
    return (
        f"{best} takes at least {duration(bound)} under the same prices, so this one is at most {gained} above the "
        f"{'best order' if of_order else 'best of these' if over else 'best possible'}. The proof ({by}): {proof}."
    )
