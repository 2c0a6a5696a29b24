"""The head of a plan's page: subtitle and four numbers; and the same as a JSON answer."""

from collections.abc import Sequence

from planner.costs.objective import STEP_SECONDS
from planner.plan.model import Plan
from planner.plan.words import work_text
from planner.report.page import Figure
from planner.report.shown import Shown, tasks_of
from planner.report.words import above
from planner.units import GIB, duration, percent, plural, size
from planner.verify.bounds import same_work
from planner.verify.score import CLOSED, Score, tightest
from planner.verify.worth import mean_worth, objective_of, samples, tokens


def subtitle(plan: Plan) -> str:
    kinds = ", ".join(f"{kind.count} × {kind.kind}" for kind in plan.ranks)
    micro_batches = plural(sum(len(step.micro_batches) for step in plan.steps), "micro-batch")
    steps = f"{len(plan.steps)} steps, " if len(plan.steps) > 1 else ""
    return f"{plan.made.strategy} on {kinds} · {steps}{micro_batches} · {work_text(plan)}"


def figures(plan: Plan, scores: Sequence[Score]) -> tuple[Figure, ...]:
    """The four numbers: step time, distance from the bound, memory, tokens per second."""
    values, count = [score.value for score in scores], len(scores)
    mean, bound = sum(values) / count, sum(min(s.bound.seconds, s.value) for s in scores) / count
    spread = max(score.timeline.spread for score in scores)
    full = tightest(scores)
    cap = full.holding.allowed(full.fullest)
    gap = above(mean, bound)
    distance = f"≤ {percent(gap)}" if gap > CLOSED else "0 %"
    of_order = any(same_work(score.bound.by) for score in scores)
    by = ", ".join(dict.fromkeys(score.bound.by for score in scores))
    over = f"{duration(min(values))} to {duration(max(values))}, " if count > 1 else ""
    goal = objective_of(plan)
    also = "" if plan.outcome.objective == STEP_SECONDS else f"{goal.said(mean_worth(plan, mean))}, "
    least = goal.said(mean_worth(plan, bound))
    limit = plan.uses.limits.tokens_per_rank
    allowed = f"of {size(cap)} allowed on rank {full.fullest}, simulated" + (
        f"; the job's limit: {limit:,} tokens" if limit else ""
    )
    of = f"of {' and '.join(samples(plan))}, " if len(plan.layouts) > 1 else ""
    rate_note = f"{of}{plural(plan.size, 'rank')}, simulated"
    return (
        Figure(
            "Mean step" if count > 1 else "Step", duration(mean), f"{also}{over}± {percent(spread)} (80 %), simulated"
        ),
        Figure(f"Above the best {'order' if of_order else 'possible'}", distance, f"bound {least}, by {by}"),
        Figure("Fullest rank", size(full.peak), allowed),
        Figure("Tokens per second", f"{tokens(plan, range(count)) / (sum(values) or 1.0):,.0f}", rate_note),
    )


def summary(plan: Plan, scores: Sequence[Score], measured: Sequence[Shown]) -> dict[str, object]:
    full = tightest(scores)
    return {
        "page": "plan",
        "plan": plan.name,
        "ranks": plan.size,
        "steps": len(scores),
        "tasks": round(sum(sum(tasks_of(score.timeline)) for score in scores)),
        "step_seconds": sum(score.value for score in scores) / len(scores),
        "objective": plan.outcome.objective,
        "unit": objective_of(plan).unit,
        "bound": mean_worth(plan, sum(min(score.bound.seconds, score.value) for score in scores) / len(scores)),
        "peak_memory_gib": full.peak / GIB,
        "allowed_gib": full.holding.allowed(full.fullest) / GIB,
        "fullest_rank": full.fullest,
        "measured_step_seconds": [shown.timeline.step_seconds for shown in measured],
    }
