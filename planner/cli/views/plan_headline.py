"""What people ask of a plan first: how long a step takes, tokens, MFU, dollars, memory; then how good that is."""

from collections.abc import Iterator
from math import exp

from rich.text import Text

from planner.costs import find_objective
from planner.errors import InputError
from planner.plan.plan_file import Outcome, Plan
from planner.scoring import (
    allowed_bytes_on,
    bounds_same_work,
    exceeds_memory,
    interval_spread,
    objective_value,
    throughput,
)
from planner.specs.hardware.cluster import device_of_rank
from planner.units import GIB, duration, percent, plural

MILLION = 1e6  # tokens


def headline(plan: Plan) -> Iterator[Text]:
    """Lines that lead a screen about a plan: the step with its interval, what it gives, and the proof."""
    steps, predicted = len(plan.steps), plan.prediction
    seconds = predicted.step_seconds / steps
    spread = interval_spread(plan, predicted.spread)
    low, high = (duration(seconds * exp(side * spread)) for side in (-1, 1))
    if not fits_devices(plan):
        yield Text("DOES NOT FIT in the memory of its devices", style="bold red")
    every = f" each, {plural(steps, 'step')} in {duration(predicted.step_seconds)}," if steps > 1 else ""
    yield Text.assemble("step ", (duration(seconds), "bold"), f"{every} simulated, {low} to {high} (80 % interval)")
    yield Text(", ".join(gains(plan, seconds)))
    yield proof_line(plan.outcome)


def gains(plan: Plan, seconds: float) -> Iterator[str]:
    """Tokens, MFU and dollars of a mean step of so many seconds, and the chance of running out of memory."""
    given = throughput(plan, seconds)
    if given.tokens_per_second:
        yield f"{given.tokens_per_second:,.0f} tokens/s"
        yield f"MFU {percent(given.mfu)}"
        try:
            per_dollar = objective_value(
                plan, plan.prediction.step_seconds, range(len(plan.steps)), "tokens_per_dollar"
            )
            yield f"${MILLION / per_dollar:.3g} per million tokens at usd_per_hour"
        except InputError:
            pass  # nobody said what an hour of these ranks costs
    if plan.uses.limits.tokens_per_rank is None:
        yield f"{percent(plan.prediction.oom_chance)} chance of running out of memory"


def fits_devices(plan: Plan) -> bool:
    """Whether the fullest rank stays within what its device allows; a job's own limit in tokens replaces that."""
    kind = device_of_rank(plan.uses.cluster, plan.prediction.fullest_rank)
    over = exceeds_memory(plan.prediction.peak_memory_gib * GIB, allowed_bytes_on(plan, kind))
    return plan.uses.limits.tokens_per_rank is not None or not over


def proof_line(outcome: Outcome) -> Text:
    """How far a plan is from its bound: `at most 0.2 % above the best possible (bound 5.20 s, by coupled)`."""
    of_order, goal = bounds_same_work(outcome.bound_by), find_objective(outcome.objective)
    optimal = "no other order of the same work is shorter" if of_order else "proven optimal"
    status = {"optimal": optimal, "by_hand": "written by hand"}.get(outcome.status, "")
    best = "the best order of the same work" if of_order else "the best possible"
    distance = (
        f"{best} gives at most {percent(outcome.gap)} more"
        if goal.larger_is_better
        else f"at most {percent(outcome.gap)} above {best}"
    )
    stated = "" if goal.unit == "s" else f"{goal.formatted(outcome.value)}, "
    return Text.assemble(
        f"{stated}{status or distance} ", (f"(bound {goal.formatted(outcome.bound)}, by {outcome.bound_by})", "dim")
    )
