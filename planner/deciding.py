"""Solves a job batch by batch with its strategy, or with every strategy that applies, keeping the best plan.

`strategy: best` leaves open when ranks synchronise: in every micro-batch, as ZeRO-3's all-gathers force them to, or
once a step under a lower ZeRO stage, which leaves less memory for tokens. Each alternative is solved, and the plan
records what the others give.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from planner.costs.objective import StepWork, find_objective
from planner.errors import Infeasible, InputError
from planner.plan.join import join_plans, round_digits
from planner.plan.model import Alternative, Plan
from planner.plan.words import fixable_layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync
from planner.strategies import base_strategy, refining_strategy, strategy_called
from planner.units import percent
from planner.verify.worth import restate_in_objective

OnProgress = Callable[[int, int, str], None]  # batches done, batches in all, name of the phase
BEST = "best"
SYNC_ALTERNATIVES: tuple[tuple[str, int, Sync], ...] = (  # strategy, ZeRO stage, when ranks synchronise
    ("sequence_groups", 3, "micro_batch"),
    ("data_ranks", 2, "step"),
    ("data_ranks", 1, "step"),
)


@dataclass(frozen=True, slots=True)
class SolvedJob:
    """A plan, and the seconds that solving each of its steps took."""

    plan: Plan
    step_seconds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return sum(self.step_seconds)


def solve_job(inputs: Inputs, on_batch: OnProgress) -> SolvedJob:
    """The plan of all batches of a job. Raises InputError where the strategy does not support the job, and
    Infeasible.
    """
    require_objective(inputs)
    return best_of_strategies(inputs, on_batch) if inputs.job.strategy == BEST else solve_by_strategy(inputs, on_batch)


def require_objective(inputs: Inputs) -> None:
    """Raises InputError where no such objective exists, or the cluster lacks what it needs (the price of a rank)."""
    objective = find_objective(inputs.job.objective, f"{inputs.sources.get('job', 'the job')} (objective)")
    try:
        objective.of(StepWork(1.0, inputs.cluster, inputs.devices, 1))
    except InputError as error:
        where = f"{inputs.sources.get('cluster', inputs.cluster.name)} (ranks)"
        raise InputError(error.message, where=where, fix=error.fix) from error


def solve_by_strategy(inputs: Inputs, on_batch: OnProgress) -> SolvedJob:
    """Solves the job batch by batch with its own strategy."""
    chosen, reason = strategy_called(inputs.job.strategy), unsupported_reason(inputs)
    if reason:
        message, _, fix = reason.partition(" | ")
        where = f"{inputs.sources['job']} (strategy)"
        raise InputError(message, where=where, fix=fix or "change the job, or its strategy")
    plans, seconds = [], []
    for number, batch in enumerate(inputs.batches):
        on_batch(number, len(inputs.batches), "")
        start = perf_counter()
        single = replace(inputs, batches=(batch,))
        plan = chosen.plan(single, base_plan(single))
        plans.append(with_fields(plan, alternatives=(*plan.alternatives, *unrefined_alternative(single, plan))))
        seconds.append(perf_counter() - start)
    return SolvedJob(restate_in_objective(join_plans(plans), inputs.job.objective), tuple(seconds))


def unsupported_reason(inputs: Inputs) -> str | None:
    """Why the job's strategy, or the one that it refines, does not support the job; None where both do."""
    reason = strategy_called(inputs.job.strategy).supports(inputs)
    return reason or (unsupported_reason(base_inputs_of(inputs)) if base_strategy(inputs.job.strategy) else None)


def base_inputs_of(inputs: Inputs) -> Inputs:
    """The job as given to the strategy that its own strategy refines."""
    base = refining_strategy(inputs.job.strategy).inputs_for_base(inputs)
    return replace(base, job=with_fields(base.job, strategy=base_strategy(inputs.job.strategy)))


def base_plan(inputs: Inputs) -> Plan | None:
    """The plan that the job's strategy refines, recorded under the job's strategy name; None where it refines none.

    Raises Infeasible.
    """
    if not base_strategy(inputs.job.strategy):
        return None
    refined_inputs = base_inputs_of(inputs)
    base = strategy_called(refined_inputs.job.strategy).plan(refined_inputs, base_plan(refined_inputs))
    return with_fields(base, made=with_fields(base.made, strategy=inputs.job.strategy))


def unrefined_alternative(inputs: Inputs, chosen: Plan) -> tuple[Alternative, ...]:
    """What the refined strategy gives by itself, as an alternative: its plan may be one that the refinement cannot
    start from.
    """
    if not base_strategy(inputs.job.strategy):
        return ()
    name = base_strategy(inputs.job.strategy)
    base = strategy_called(name)
    base_inputs = replace(inputs, job=with_fields(inputs.job, strategy=name))
    if base.supports(base_inputs):
        return ()
    try:
        plan = base.plan(base_inputs, base_plan(base_inputs))
    except Infeasible:
        return ()
    ((module, layout),) = plan.layouts.items()
    slowdown = plan.outcome.value / chosen.outcome.value - 1.0
    return (
        Alternative(
            strategy=name,
            zero=layout.zero,
            sync=plan.steps[0].sync,
            value=plan.outcome.value,
            because=f"what {name} gives alone, {percent(abs(slowdown))} {'slower' if slowdown >= 0 else 'quicker'}",
            layouts={module: fixable_layout(layout)},
        ),
    )


def best_of_strategies(inputs: Inputs, on_batch: OnProgress) -> SolvedJob:
    """Solves every (strategy, ZeRO stage, synchronisation) that the job leaves open; the fastest plan wins.

    Raises the first alternative's Infeasible when none is feasible, and InputError where none has the job's ZeRO stage.
    """
    solved: dict[int, SolvedJob] = {}
    refused: dict[int, Infeasible] = {}
    candidates = open_alternatives(inputs)
    for number in candidates:
        name, zero, sync = SYNC_ALTERNATIVES[number]
        layout = with_fields(inputs.job.layout, zero=zero)
        job = with_fields(inputs.job, strategy=name, sync=sync, layout=layout)
        try:
            solved[number] = solve_by_strategy(replace(inputs, job=job), on_batch)
        except Infeasible as error:
            refused[number] = error
    if not solved:
        raise refused[candidates[0]]
    loss = find_objective(inputs.job.objective).loss
    chosen = min(solved, key=lambda number: (loss(solved[number].plan.outcome.value), number))
    others = [number for number in candidates if number != chosen]
    instead = tuple(lost_alternative(number, solved.get(number), refused.get(number)) for number in others)
    seconds = tuple(map(sum, zip(*(each.step_seconds for each in solved.values()), strict=True)))
    return SolvedJob(with_fields(solved[chosen].plan, alternatives=instead), seconds)


def open_alternatives(inputs: Inputs) -> list[int]:
    """Indices of the alternatives with the job's ZeRO stage, or of all where it gives none.

    Raises InputError where none has that stage.
    """
    stage = inputs.job.layout.zero
    candidates = [number for number, (_, zero, _) in enumerate(SYNC_ALTERNATIVES) if stage in (None, zero)]
    if not candidates:
        message = f"best tries ZeRO stages 1 to 3, and the job says zero: {stage}"
        fix = "leave zero out, or say strategy: data_ranks and sync: step"
        raise InputError(message, where=f"{inputs.sources['job']} (layout.zero)", fix=fix)
    return candidates


def lost_alternative(number: int, solved: SolvedJob | None, refused: Infeasible | None) -> Alternative:
    """The plan file's entry for an alternative that was not chosen."""
    name, zero, sync = SYNC_ALTERNATIVES[number]
    because = refused.message if refused else ""
    if solved is None:
        return Alternative(strategy=name, zero=zero, sync=sync, because=because)
    layouts = {module: fixable_layout(layout) for module, layout in solved.plan.layouts.items()}
    return Alternative(
        strategy=name, zero=zero, sync=sync, value=round_digits(solved.plan.outcome.value), because=because, layouts=layouts
    )
