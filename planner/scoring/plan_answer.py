"""The JSON answer about a plan, the same for every verb: time, lower bound, memory, MFU and alternatives.

`solve`, `show`, `predict` and `fits` print these keys with `--json`; other people's scripts rely on their names.
"""

from collections.abc import Sequence
from dataclasses import asdict
from math import exp
from typing import Any, NamedTuple

from planner.costs import ASSUMED_SHARES
from planner.plan.pack_fill import pack_fill
from planner.plan.plan_file import Alternative, Layout, Plan, PricedLayouts
from planner.scoring.bounds.bound_scope import bound_over
from planner.scoring.bounds.step_bounds import SPACE, bounds_same_work
from planner.scoring.expert_answer import expert_answers
from planner.scoring.loader_score import loader_bound_steps, step_loading_seconds
from planner.scoring.nearest_run import interval_spread, nearest_run
from planner.scoring.objective_value import (
    BESIDE,
    mean_objective_value,
    objective_of,
    sample_tokens,
    seconds_for_value,
)
from planner.scoring.score import Score, bounded_value, fullest_score
from planner.scoring.shared_devices import shared_modules
from planner.scoring.table_score import least_table_seconds
from planner.scoring.undecided_order import undecided_order
from planner.scoring.work_at_peak import seconds_at_peak
from planner.specs.base import Ranks
from planner.specs.parallelism import Parallelism, decided_fields
from planner.units import GIB

PlanAnswer = dict[str, Any]


def plan_answer(plan: Plan, scores: Sequence[Score]) -> PlanAnswer:
    """The answer about a plan, its numbers those of the mean step."""
    seconds = sum(score.step_seconds for score in scores) / len(scores)
    by, bound = step_bounds(plan, scores)
    spread, packed = max(score.timeline.spread for score in scores), pack_fill(plan)
    spread = interval_spread(plan, spread)
    return {
        "layouts": {name: layout_fields(layout) for name, layout in plan.layouts.items()},
        "objective": plan.outcome.objective,
        "unit": objective_of(plan).unit,
        "step_seconds": seconds,
        "interval_seconds": [seconds * exp(-spread), seconds * exp(spread)],
        "nearest_run": nearest_answer(plan),
        "value": mean_objective_value(plan, seconds),
        "bound": mean_objective_value(plan, bound),
        "gap": max(0.0, bounded_seconds(plan, seconds) / bound - 1.0) if bound > 0 else 0.0,
        "bound_by": by,
        "bound_of": "layout" if bounds_same_work(by) else "space",
        "bound_over": plan.outcome.bound_over or bound_over(plan),
        **{name: beside_answer(plan, getattr(plan.outcome, name)) for name in BESIDE},
        "memory": memory_answer(scores),
        **throughput(plan, seconds)._asdict(),
        "dropped": [*plan.uses.dropped],
        "left_out": {name: [*items] for name, items in plan.uses.left_out.items()},
        "packs": packed and asdict(packed),
        "experts": [asdict(each) for each in expert_answers(plan)],
        "alternatives": [alternative_answer(plan, each) for each in plan.alternatives],
        "undecided": undecided_answer(plan),
        **table_answer(plan, scores),
        **loader_answer(plan, scores),
        **shares_answer(plan),
    }


def shares_answer(plan: Plan) -> PlanAnswer:
    """What modules have of devices that they share, and what its price rests on; nothing without shares."""
    own, known = shared_modules(plan), plan.uses.prices.shares or ASSUMED_SHARES
    if not own:
        return {}
    rests = {name: getattr(known, name) for name in ("source", "kappa", "gamma", "launch_threads", "holdout_error")}
    return {"shares": {"of": own, **rests}}


def table_answer(plan: Plan, scores: Sequence[Score]) -> PlanAnswer:
    """Groups of embedding tables, their seconds on the slowest rank and the bound of these; nothing without tables."""
    loads, placed = scores[0].tables, plan.embeddings
    if not loads or not placed:
        return {}
    names = ("groups", "replicas", "average_every")
    slowest, least = float(loads.seconds.max()), least_table_seconds(plan)
    seconds = {"seconds": slowest, "bound": least, "imbalance": loads.imbalance}
    return {"tables": {name: getattr(placed, name) for name in names} | seconds}


def loader_answer(plan: Plan, scores: Sequence[Score]) -> PlanAnswer:
    """How ranks are given their batches, seconds of loading and of training a step, and how many steps wait; nothing
    without a loader.
    """
    if not plan.loader:
        return {}
    loading = [step_loading_seconds(plan, number) for number in range(len(scores))]
    seconds = {"loading_seconds": loading, "trained_seconds": [each.trained_seconds for each in scores]}
    bound = loader_bound_steps(plan, scores)
    settings = {name: getattr(plan.loader, name) for name in plan.loader.__struct_fields__}
    return {"loader": {**settings, **seconds, "loader_bound_steps": bound}}


def bounded_seconds(plan: Plan, seconds: float) -> float:
    """Seconds of the mean step that the gap to the bound is of: those of the quickest layouts, or the plan's own."""
    others = plan.outcome.quickest if bounded_value(plan.outcome) != plan.outcome.value else None
    return seconds_for_value(plan, others.value, range(len(plan.steps))) if others else seconds


def beside_answer(plan: Plan, beside: PricedLayouts | None) -> PlanAnswer | None:
    """Layouts beside the plan's own, with the seconds of the step; None where no search looked for any."""
    if beside is None:
        return None
    layouts = {name: decided_fields(each) for name, each in beside.layouts.items()}
    return {"layouts": layouts, "step_seconds": seconds_for_value(plan, beside.value, range(len(plan.steps)))}


class Throughput(NamedTuple):
    """Tokens a second of modules that feed no other, and the MFU of all."""

    tokens_per_second: float
    mfu: float


def throughput(plan: Plan, seconds: float) -> Throughput:
    """What a plan gives when its mean step takes so many seconds; zeros where it takes none."""
    if not seconds:
        return Throughput(0.0, 0.0)
    steps = range(len(plan.steps))
    at_peak = sum(seconds_at_peak(plan, steps, Ranks(range(plan.size))).values()) / len(steps)
    return Throughput(sample_tokens(plan, steps) / len(steps) / seconds, at_peak / seconds)


def step_bounds(plan: Plan, scores: Sequence[Score]) -> tuple[str, float]:
    """The names of a plan's bounds, and their seconds for the mean step: over its space of layouts as the plan states
    it, which takes a search to find again, else as these scores give it.
    """
    if plan.outcome.bound_by == SPACE:
        steps = range(len(plan.steps))
        return SPACE, seconds_for_value(plan, plan.outcome.bound, steps) / len(steps)
    bound = sum(min(score.bound.seconds, score.step_seconds) for score in scores) / len(scores)
    return "+".join(sorted({score.bound.by for score in scores})), bound


def layout_fields(layout: Layout) -> PlanAnswer:
    """Every field of a layout, as a job's `fix.layouts` takes them."""
    fields = {name: getattr(layout, name) for name in Parallelism.__struct_fields__}
    return fields | {"ranks": layout.ranks.to_file(), "stages": [layers.to_file() for layers in layout.stages]}


def memory_answer(scores: Sequence[Score]) -> PlanAnswer:
    """Memory of the rank with least room left, in its fullest step."""
    score = fullest_score(scores)
    return {
        "peak_gib": score.peak_bytes / GIB,
        "allowed_gib": score.plan_memory.allowed_bytes(score.fullest_rank) / GIB,
        "chance": score.oom_chance,
    }


def alternative_answer(plan: Plan, tried: Alternative) -> PlanAnswer:
    """An alternative that was tried, with its seconds of the mean step."""
    layouts = {name: decided_fields(each) for name, each in tried.layouts.items()}
    every = range(len(plan.steps))
    seconds, about = (
        None if value is None else seconds_for_value(plan, value, every) for value in (tried.value, tried.about)
    )
    answer = {"strategy": tried.strategy, "layouts": layouts, "step_seconds": seconds, "because": tried.because}
    return answer | ({"about_seconds": about} if tried.too_slow or tried.about is not None else {})


def nearest_answer(plan: Plan) -> PlanAnswer | None:
    """The published run nearest to the plan: what it ran, and how far it is by fact; None where its work was timed."""
    nearest = nearest_run(plan)
    if nearest is None:
        return None
    far = {"distance": nearest.distance, "apart": nearest.apart, "spread": nearest.spread}
    return {"source": nearest.source, **nearest.run._asdict(), **far}


def undecided_answer(plan: Plan) -> PlanAnswer:
    """How many alternatives predictions cannot tell from the plan, what share of the objective it is worth to know the
    best of them, and seconds of the steps by which `planner profile --settle` tells it.
    """
    order = undecided_order(plan)
    return {"ties": len(order.ties), "expected_gain": order.gain, "settling_seconds": order.seconds}
