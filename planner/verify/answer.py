"""The JSON answer about a plan, the same for every verb: time, lower bound, memory, MFU and alternatives.

`solve`, `show`, `predict` and `fits` print these keys with `--json`; other people's scripts rely on their names.
"""

from collections.abc import Sequence
from math import exp
from typing import Any

from planner.costs.compute.machine import peak_flops
from planner.plan.feeding import fed_tokens
from planner.plan.model import Alternative, Layout, Plan, assignments
from planner.specs.cluster import kind_of
from planner.specs.parallelism import Parallelism, said
from planner.specs.shapes import step_flops
from planner.units import GIB
from planner.verify.bounds import same_work
from planner.verify.score import Score, tightest
from planner.verify.worth import lengths_in, mean_worth, objective_of, seconds_of, tokens

Answer = dict[str, Any]


def answer(plan: Plan, scores: Sequence[Score]) -> Answer:
    """The answer about a plan, its numbers those of the mean step."""
    seconds = sum(score.value for score in scores) / len(scores)
    bound = sum(min(score.bound.seconds, score.value) for score in scores) / len(scores)
    spread = max(score.timeline.spread for score in scores)
    every = range(len(plan.steps))
    return {
        "layouts": {name: whole(layout) for name, layout in plan.layouts.items()},
        "objective": plan.outcome.objective,
        "unit": objective_of(plan).unit,
        "step_seconds": seconds,
        "interval_seconds": [seconds * exp(-spread), seconds * exp(spread)],
        "value": mean_worth(plan, seconds),
        "bound": mean_worth(plan, bound),
        "gap": (seconds - bound) / bound if bound > 0 else 0.0,
        "bound_by": "+".join(sorted({score.bound.by for score in scores})),
        "bound_of": "layout" if any(same_work(score.bound.by) for score in scores) else "space",
        "memory": memory(scores),
        "tokens_per_second": tokens(plan, every) / len(scores) / seconds if seconds else 0.0,
        "mfu": flops(plan) / len(scores) / (seconds * peak(plan)) if seconds else 0.0,
        "alternatives": [alternative_answer(plan, each) for each in plan.alternatives],
    }


def whole(layout: Layout) -> Answer:
    """Every field of a layout, as a job's `fix.layouts` takes them."""
    return {name: getattr(layout, name) for name in Parallelism.__struct_fields__}


def memory(scores: Sequence[Score]) -> Answer:
    """Memory of the rank with least room left, in its fullest step."""
    score = tightest(scores)
    return {
        "peak_gib": score.peak / GIB,
        "allowed_gib": score.holding.allowed(score.fullest) / GIB,
        "chance": score.chance,
    }


def alternative_answer(plan: Plan, tried: Alternative) -> Answer:
    """An alternative that was tried, with its seconds of the mean step."""
    layouts = {name: said(each) for name, each in tried.layouts.items()}
    seconds = None if tried.value is None else seconds_of(plan, tried.value, range(len(plan.steps)))
    return {"strategy": tried.strategy, "layouts": layouts, "step_seconds": seconds, "because": tried.because}


def flops(plan: Plan) -> float:
    """FLOPs of all steps and modules, recomputation not counted."""
    every = range(len(plan.steps))
    return sum(
        step_flops(plan.uses.models[name], lengths_in(plan, name, every), cross_attention_tokens(plan, name))
        for name in plan.layouts
    )


def cross_attention_tokens(plan: Plan, module: str) -> tuple[int, ...]:
    """Tokens that the cross attention of each item reads, in the order of the steps; empty without cross attention."""
    if not plan.uses.models[module].crossing:
        return ()
    read = fed_tokens(plan, "cross_attention")
    placed = (a for step in plan.steps for micro_batch in step.micro_batches for a in assignments(plan, micro_batch))
    return tuple(read.get((module, item), 0) for a in placed if a.module == module for item in a.items)


def peak(plan: Plan) -> float:
    """Peak FLOP/s of all ranks together, in the precision of the first module's products."""
    dtype = next(iter(plan.layouts.values())).dtype
    kinds = [kind_of(plan.uses.cluster, rank) for rank in range(plan.size)]
    return sum(peak_flops(plan.uses.devices[kind], dtype) for kind in kinds)
