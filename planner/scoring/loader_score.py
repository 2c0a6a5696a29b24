"""A plan with how its ranks are given their batches, and with predictions that count what its loader needs."""

from collections.abc import Sequence

from planner.costs import CORES, loader_reads, loading_seconds, with_loading
from planner.plan.join_plans import total_outcome, total_prediction
from planner.plan.plan_file import Plan
from planner.scoring.objective_value import restate_in_objective
from planner.scoring.score import Score, outcome_of, prediction_of, score
from planner.specs.base import with_fields
from planner.specs.loader import LoaderFile, LoaderSettings


def with_loader(plan: Plan, loader: LoaderFile | None) -> Plan:
    """The plan with the settings with which its steps are soonest ready, and predictions that count its loader; as it
    is where there is none.
    """
    if loader is None:
        return plan
    loaded = with_fields(plan, uses=with_fields(plan.uses, loader=loader))
    loaded = with_fields(loaded, loader=best_settings(loaded, loader))
    scores = [score(loaded, number) for number in range(len(loaded.steps))]
    return restated(loaded, scores) if any(each.loading for each in scores) else loaded


def best_settings(plan: Plan, loader: LoaderFile) -> LoaderSettings:
    """The settings with which the steps of a plan are shortest; of equal ones those with the fewest workers."""
    ranks = max(loader_reads(plan, number).ranks for number in range(len(plan.steps)))
    cores = loader.pools[CORES].units if CORES in loader.pools else 1
    usual = loader.settings or LoaderSettings(workers=0)
    on_gpus = any(device.kind == "cuda" for device in plan.uses.devices.values())
    tried = [with_fields(usual, workers=count, pinned=on_gpus) for count in range(max(1, cores // ranks) + 1)]

    def seconds(settings: LoaderSettings) -> float:
        given = with_fields(plan, loader=settings)
        trained = [(step.prediction or plan.prediction).step_seconds for step in plan.steps]
        return sum(with_loading(given, number, each) for number, each in enumerate(trained))

    return min(tried, key=lambda settings: (seconds(settings), settings.workers))


def restated(plan: Plan, scores: list[Score]) -> Plan:
    """The plan with outcomes and predictions of these scores. Layouts beside it were compared without a loader, which
    ranks of each ask for other numbers of samples, and are left out.
    """
    outcomes = [
        outcome_of(each, (step.outcome or plan.outcome).effort) for step, each in zip(plan.steps, scores, strict=True)
    ]
    predictions = [prediction_of(each) for each in scores]
    steps = tuple(
        with_fields(step, outcome=outcome, prediction=prediction) if step.outcome else step
        for step, outcome, prediction in zip(plan.steps, outcomes, predictions, strict=True)
    )
    in_seconds = with_fields(
        plan, outcome=total_outcome(outcomes), prediction=total_prediction(predictions), steps=steps, alternatives=()
    )
    return restate_in_objective(in_seconds, plan.outcome.objective)


def loader_bound_steps(plan: Plan, scores: Sequence[Score]) -> int:
    """How many steps wait for the loader."""
    return sum(each.loading > 0 for each in scores)


def step_loading_seconds(plan: Plan, number: int) -> float:
    """Seconds in which the samples of a step are loaded, beside what trains or not."""
    loader, settings = plan.uses.loader, plan.loader
    assert loader and settings, "only plans with a loader are asked"
    return loading_seconds(loader, settings, loader_reads(plan, number))
