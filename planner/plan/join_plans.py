"""Joins plans of consecutive batches into one plan: a step for each, all their groups, and summed outcomes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from planner.errors import InputError
from planner.plan.plan_file import Alternative, Breakdown, Group, Outcome, Plan, Prediction
from planner.specs.base import Indices, with_fields


def join_plans(plans: Sequence[Plan]) -> Plan:
    """Return one plan; each step keeps its own outcome and prediction. All other decisions must agree.

    Raises InputError where an item of an encoder is read in several batches: a plan has each once.
    """
    first = plans[0]
    if len(plans) == 1:
        return first
    require_own_items(plans)
    items = {
        module: {item: size for plan in plans for item, size in plan.uses.items[module].items()}
        for module in first.uses.items
    }
    feeds = {
        edge: {item: fed for plan in plans for item, fed in plan.uses.feeds[edge].items()} for edge in first.uses.feeds
    }
    tasks = {
        name: with_fields(task, samples=Indices(sorted({s for plan in plans for s in plan.uses.tasks[name].samples})))
        for name, task in first.uses.tasks.items()
    }
    dropped = tuple(sample for plan in plans for sample in plan.uses.dropped)
    left_out = joined_left_out((plan.uses.left_out for plan in plans), first.layouts)
    steps = [
        with_fields(step, outcome=plan.outcome, prediction=plan.prediction) for plan in plans for step in plan.steps
    ]
    return with_fields(
        first,
        made=with_fields(first.made, batches=len(plans)),
        outcome=total_outcome([plan.outcome for plan in plans]),
        prediction=total_prediction([plan.prediction for plan in plans]),
        alternatives=tuple(map(partial(joined_alternative, plans), first.alternatives)),
        groups=all_groups(plans),
        steps=tuple(steps),
        uses=with_fields(first.uses, items=items, feeds=feeds, tasks=tasks, dropped=dropped, left_out=left_out),
    )


def joined_alternative(plans: Sequence[Plan], tried: Alternative) -> Alternative:
    """Return an alternative of the first plan as an estimate of all, by how much longer these take than the first."""
    seconds = tried.about if tried.value is None else tried.value
    if seconds is None:
        return tried
    about = round_digits(seconds * sum(plan.outcome.value for plan in plans) / plans[0].outcome.value)
    return with_fields(tried, value=None, about=about, because=f"of the first of {len(plans)} steps: {tried.because}")


def require_own_items(plans: Sequence[Plan]) -> None:
    """Raise InputError for the first item that several of the plans have."""
    for module in plans[0].uses.items:
        times = Counter(item for plan in plans for item in plan.uses.items[module])
        item, most = max(times.items(), key=lambda each: each[1], default=(0, 0))
        if most > 1:
            message = f"item {item} of `{module}` is read by samples of {most} batches, and a plan has it once"
            fix = "plan batches one by one (--first-row, or planning: per_batch), or give each batch an item of its own"
            raise InputError(message, where=f"{plans[0].name} (uses.items.{module})", fix=fix)


def joined_left_out(
    batches: Iterable[Mapping[str, tuple[int, ...]]], modules: Iterable[str]
) -> dict[str, tuple[int, ...]]:
    """Return the items left out of all batches, by those of these modules that have any."""
    every = [*batches]
    joined = {name: tuple(item for batch in every for item in batch.get(name, ())) for name in modules}
    return {name: items for name, items in joined.items() if items}


def all_groups(plans: Sequence[Plan]) -> dict[str, Group]:
    """Return the groups of all plans, by first rank, large before small."""
    groups = {name: group for plan in plans for name, group in plan.groups.items()}
    return dict(sorted(groups.items(), key=lambda entry: (entry[1].ranks[0], -len(entry[1].ranks), entry[0])))


def total_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Return values and bounds summed over steps, optimal where each of them is."""
    if len(outcomes) == 1:
        return outcomes[0]
    value, bound = sum(o.value for o in outcomes), sum(o.bound for o in outcomes)
    return Outcome(
        status="optimal" if all(o.status == "optimal" for o in outcomes) else "feasible",
        value=round_digits(value),
        bound=round_digits(bound),
        gap=round_digits((value - bound) / bound if bound > 0 else 0.0),
        bound_by="+".join(sorted({name for o in outcomes for name in o.bound_by.split("+")})),
        effort=outcomes[0].effort if len({o.effort for o in outcomes}) == 1 else "each step says its own",
    )


def total_prediction(predictions: Sequence[Prediction]) -> Prediction:
    """Return seconds summed, memory of the step most likely to run out, spread and measured share weighted by time."""
    if len(predictions) == 1:
        return predictions[0]
    fullest = max(predictions, key=lambda each: (each.oom_chance, each.peak_memory_gib))
    total = sum(p.step_seconds for p in predictions) or 1.0
    return Prediction(
        step_seconds=round_digits(sum(p.step_seconds for p in predictions)),
        spread=round_digits(sum(p.spread * p.step_seconds for p in predictions) / total),
        peak_memory_gib=fullest.peak_memory_gib,
        fullest_rank=fullest.fullest_rank,
        oom_chance=fullest.oom_chance,
        breakdown=Breakdown(
            compute=round_digits(sum(p.breakdown.compute for p in predictions)),
            exposed_comm=round_digits(sum(p.breakdown.exposed_comm for p in predictions)),
            idle=round_digits(sum(p.breakdown.idle for p in predictions)),
        ),
        measured_share=round_digits(sum(p.measured_share * p.step_seconds for p in predictions) / total),
    )


def round_digits(number: float) -> float:
    """Round to nine significant digits, so that files are the same on all machines."""
    return float(f"{number:.9g}")
