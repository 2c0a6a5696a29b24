"""A job decided batch by batch by its strategy; or by every strategy that could, for the best of them.

`strategy: best` leaves it open when ranks meet: in every micro-batch, which ZeRO-3's gathers make them, or once a step
under a lower ZeRO stage, which leaves less memory for tokens. Every way is tried, and the plan says what the others
give.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from planner.costs.objective import Work, objective_called
from planner.errors import Infeasible, InputError
from planner.plan.join import join, tidy
from planner.plan.model import Instead, Plan
from planner.plan.words import spoken
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync
from planner.strategies import refined, refining, strategy
from planner.units import percent
from planner.verify.worth import in_objective

OnProgress = Callable[[int, int, str], None]  # done, of how many, what
BEST = "best"
WAYS: tuple[tuple[str, int, Sync], ...] = (
    ("sequence_groups", 3, "micro_batch"),
    ("data_ranks", 2, "step"),
    ("data_ranks", 1, "step"),
)  # strategy, ZeRO stage, and when ranks meet


@dataclass(frozen=True, slots=True)
class Solved:
    """A plan, and how long solving alone took, step by step."""

    plan: Plan
    step_seconds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return sum(self.step_seconds)


def decide(inputs: Inputs, on_batch: OnProgress) -> Solved:
    """The plan of all batches. Raises InputError when the strategy cannot decide this job, and Infeasible."""
    require_objective(inputs)
    return best(inputs, on_batch) if inputs.job.strategy == BEST else by_strategy(inputs, on_batch)


def require_objective(inputs: Inputs) -> None:
    """Raises InputError where there is no such objective, or the cluster says too little for it."""
    objective = objective_called(inputs.job.objective, f"{inputs.sources.get('job', 'the job')} (objective)")
    try:
        objective.of(Work(1.0, inputs.cluster, inputs.devices, 1))
    except InputError as error:
        where = f"{inputs.sources.get('cluster', inputs.cluster.name)} (ranks)"
        raise InputError(error.message, where=where, fix=error.fix) from error


def by_strategy(inputs: Inputs, on_batch: OnProgress) -> Solved:
    """Let the job's strategy decide batch by batch."""
    chosen, reason = strategy(inputs.job.strategy), unsupported(inputs)
    if reason:
        message, _, fix = reason.partition(" | ")
        where = f"{inputs.sources['job']} (strategy)"
        raise InputError(message, where=where, fix=fix or "change the job, or its strategy")
    plans, seconds = [], []
    for number, batch in enumerate(inputs.batches):
        on_batch(number, len(inputs.batches), "")
        start = perf_counter()
        one = replace(inputs, batches=(batch,))
        plan = chosen.plan(one, base_of(one))
        plans.append(changed(plan, instead=(*plan.instead, *unrefined(one, plan))))
        seconds.append(perf_counter() - start)
    return Solved(in_objective(join(plans), inputs.job.objective), tuple(seconds))


def unsupported(inputs: Inputs) -> str | None:
    """Why the job's strategy cannot decide it, or the one that it starts from; None when they can."""
    reason = strategy(inputs.job.strategy).supports(inputs)
    return reason or (unsupported(earlier(inputs)) if refined(inputs.job.strategy) else None)


def earlier(inputs: Inputs) -> Inputs:
    """The job for the strategy that its own starts from."""
    wanted = refining(inputs.job.strategy).before(inputs)
    return replace(wanted, job=changed(wanted.job, strategy=refined(inputs.job.strategy)))


def base_of(inputs: Inputs) -> Plan | None:
    """What the job's strategy starts from, if it refines another one's plan; under its own name. Raises Infeasible."""
    if not refined(inputs.job.strategy):
        return None
    before = earlier(inputs)
    base = strategy(before.job.strategy).plan(before, base_of(before))
    return changed(base, made=changed(base.made, strategy=inputs.job.strategy))


def unrefined(inputs: Inputs, chosen: Plan) -> tuple[Instead, ...]:
    """What the strategy that the job's own starts from gives alone: it may do what a refinement cannot start from."""
    if not refined(inputs.job.strategy):
        return ()
    name = refined(inputs.job.strategy)
    alone = strategy(name)
    whole = replace(inputs, job=changed(inputs.job, strategy=name))
    if alone.supports(whole):
        return ()
    try:
        plan = alone.plan(whole, base_of(whole))
    except Infeasible:
        return ()
    ((module, layout),) = plan.layouts.items()
    more = plan.outcome.value / chosen.outcome.value - 1.0
    return (
        Instead(
            strategy=name,
            zero=layout.zero,
            sync=plan.steps[0].sync,
            value=plan.outcome.value,
            because=f"what {name} gives alone, {percent(abs(more))} {'slower' if more >= 0 else 'quicker'}",
            layouts={module: spoken(layout)},
        ),
    )


def best(inputs: Inputs, on_batch: OnProgress) -> Solved:
    """Every way to synchronise that the job leaves open, and the plan of the fastest.

    Raises the first way's Infeasible when there is none, and InputError where no way can have what the job says.
    """
    solved: dict[int, Solved] = {}
    refused: dict[int, Infeasible] = {}
    ways = ways_of(inputs)
    for number in ways:
        name, zero, sync = WAYS[number]
        layout = changed(inputs.job.layout, zero=zero)
        job = changed(inputs.job, strategy=name, sync=sync, layout=layout)
        try:
            solved[number] = by_strategy(replace(inputs, job=job), on_batch)
        except Infeasible as error:
            refused[number] = error
    if not solved:
        raise refused[ways[0]]
    loss = objective_called(inputs.job.objective).loss
    chosen = min(solved, key=lambda number: (loss(solved[number].plan.outcome.value), number))
    others = [number for number in ways if number != chosen]
    instead = tuple(otherwise(number, solved.get(number), refused.get(number)) for number in others)
    seconds = tuple(map(sum, zip(*(each.step_seconds for each in solved.values()), strict=True)))
    return Solved(changed(solved[chosen].plan, instead=instead), seconds)


def ways_of(inputs: Inputs) -> list[int]:
    """Those with the ZeRO stage that the job says; all where it says none. Raises InputError when no way has it."""
    said = inputs.job.layout.zero
    ways = [number for number, (_, zero, _) in enumerate(WAYS) if said in (None, zero)]
    if not ways:
        message = f"best tries ZeRO stages 1 to 3, and the job says zero: {said}"
        fix = "leave zero out, or say strategy: data_ranks and sync: step"
        raise InputError(message, where=f"{inputs.sources['job']} (layout.zero)", fix=fix)
    return ways


def otherwise(number: int, solved: Solved | None, refused: Infeasible | None) -> Instead:
    """What a way that was not taken would have given."""
    name, zero, sync = WAYS[number]
    because = refused.message if refused else ""
    if solved is None:
        return Instead(strategy=name, zero=zero, sync=sync, because=because)
    layouts = {module: spoken(layout) for module, layout in solved.plan.layouts.items()}
    return Instead(
        strategy=name, zero=zero, sync=sync, value=tidy(solved.plan.outcome.value), because=because, layouts=layouts
    )
