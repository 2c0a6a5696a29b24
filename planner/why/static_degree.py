"""The best single degree for several batches, compared with planning each batch.

Static: every group of every batch has the same degree d; the number of micro-batches and the items in each are still
planned batch by batch. All allowed degrees are tried.

Deferral of items by one batch balances the batches: an item is trained in its own batch or in the next one, never
later, and the last batch defers nothing, so all items are trained in the end. Batches are decided first to last. Each
defers nothing, or what exceeds the mean tokens of the remaining batches (shortest or longest items first), or the items
of its last micro-batch: whichever minimizes the time of this batch and the next together. The effect on convergence is
not priced.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from planner.costs import STEP_SECONDS
from planner.errors import Infeasible
from planner.plan.plan_file import Plan, assignments
from planner.scoring import restate_in_objective
from planner.specs.base import Spec, with_fields
from planner.specs.inputs import Inputs
from planner.specs.workload.samples import SampleBatch
from planner.why.resolved import SolveAgain

Items = dict[int, int]  # item → tokens
PlanBatch = Callable[[SampleBatch], Plan]
OnDegree = Callable[[int, int, str], None]  # done, of how many, which


class DegreeResult(Spec, omit_defaults=False):
    """Seconds of all batches where every group has this degree, or why that is infeasible."""

    degree: int
    seconds: float | None  # of all batches; None: infeasible
    because: str  # binding constraint where it is infeasible


class Deferral(Spec, omit_defaults=False):
    """The static configuration when items may be deferred to the next batch."""

    seconds: tuple[float, ...]  # of each batch
    items: tuple[int, ...]  # that were deferred
    tokens: int  # of these items
    saved: float  # of all batches together, as a share of the static plan's seconds


class StaticComparison(Spec, omit_defaults=False):
    """The best single degree against a plan for each batch, over the same batches, in seconds."""

    name: str
    degree: int
    degrees: tuple[DegreeResult, ...]
    static_seconds: tuple[float, ...]  # of each batch
    per_batch_seconds: tuple[float, ...]
    per_batch_bounds: tuple[float, ...]
    gain_median: float  # share of the static plan's seconds that per-batch planning saves; over batches
    gain_p10: float
    gain_p90: float
    gain_total: float  # of all batches together
    deferral: Deferral | None  # None: a single batch


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """The static plan, and its comparison with per-batch plans."""

    plan: Plan
    comparison: StaticComparison


def best_static_degree(inputs: Inputs, resolve: SolveAgain, on_degree: OnDegree) -> StaticPlan:
    """Try every degree for all batches. Raises Infeasible when none can hold every item."""
    wanted = inputs.job.objective
    inputs = replace(inputs, job=with_fields(inputs.job, planning="ahead", objective=STEP_SECONDS))
    free = resolve(inputs)
    plans, tried, refusal = {}, [], None
    for done, degree in enumerate(free.uses.degrees):
        on_degree(done, len(free.uses.degrees), f"degree {degree}")
        try:
            plans[degree] = resolve(with_degree(inputs, degree))
        except Infeasible as error:
            refusal = error
        value = sum(step_values(plans[degree])) if degree in plans else None
        tried.append(
            DegreeResult(degree=degree, seconds=value, because=refusal.message if value is None and refusal else "")
        )
    if refusal and not plans:
        raise refusal
    best = min(plans, key=lambda degree: (sum(step_values(plans[degree])), degree))

    def decide(batch: SampleBatch) -> Plan:
        return resolve(replace(with_degree(inputs, best), batches=(batch,)))

    on_degree(len(free.uses.degrees), len(free.uses.degrees), "deferral")
    deferral = defer_items(inputs.batches, step_values(plans[best]), decide) if len(inputs.batches) > 1 else None
    return StaticPlan(
        restate_in_objective(plans[best], wanted), compare_static(plans[best], free, tuple(tried), deferral)
    )


def with_degree(inputs: Inputs, degree: int) -> Inputs:
    """The inputs of a job that allows groups of this degree only."""
    return replace(inputs, job=with_fields(inputs.job, degrees=(degree,)))


def step_values(plan: Plan) -> tuple[float, ...]:
    """Seconds of each step of a plan, as its own outcome or the plan's states them."""
    return tuple((step.outcome or plan.outcome).value for step in plan.steps)


def compare_static(
    plan: Plan, free: Plan, tried: tuple[DegreeResult, ...], deferral: Deferral | None
) -> StaticComparison:
    alone, planned = step_values(plan), step_values(free)
    gains = sorted(1 - new / old if old else 0.0 for old, new in zip(alone, planned, strict=True))
    return StaticComparison(
        name=plan.name,
        degree=plan.uses.degrees[0],
        degrees=tried,
        static_seconds=alone,
        per_batch_seconds=planned,
        per_batch_bounds=tuple((step.outcome or free.outcome).bound for step in free.steps),
        gain_median=quantile(gains, 0.5),
        gain_p10=quantile(gains, 0.1),
        gain_p90=quantile(gains, 0.9),
        gain_total=1 - sum(planned) / sum(alone) if sum(alone) else 0.0,
        deferral=deferral,
    )


def quantile(rising: list[float], share: float) -> float:
    """A quantile of rising values, by linear interpolation."""
    place = share * (len(rising) - 1)
    below = int(place)
    above = min(below + 1, len(rising) - 1)
    return rising[below] + (place - below) * (rising[above] - rising[below])


def defer_items(batches: Sequence[SampleBatch], alone: Sequence[float], decide: PlanBatch) -> Deferral:
    """Defer items greedily, batch by batch. `alone`: seconds of each batch without it; `decide`: plans a batch."""
    seconds: list[float] = []
    all_deferred: Items = {}
    carried: Items = {}  # from the batch before
    plan = decide(batches[0])
    for number, batch in enumerate(batches[:-1]):
        rest = [other.items for other in batches[number + 1 :]]
        pool, best = batch.items | carried, (float("inf"), plan, plan, Items())
        for deferred in deferrable(batch.items, carried, rest, plan):
            now = decide(SampleBatch(without(pool, deferred), ())) if deferred else plan
            after = decide(SampleBatch(rest[0] | deferred, ()))
            together = now.outcome.value + after.outcome.value
            if together < best[0] * (1 - 1e-12):
                best = (together, now, after, deferred)
        _, now, plan, carried = best
        seconds.append(now.outcome.value)
        all_deferred |= carried
    seconds.append(plan.outcome.value)
    return Deferral(
        seconds=tuple(seconds),
        items=tuple(sorted(all_deferred)),
        tokens=sum(all_deferred.values()),
        saved=1 - sum(seconds) / sum(alone) if sum(alone) else 0.0,
    )


def deferrable(items: Items, carried: Items, rest: list[Items], plan: Plan) -> Iterator[Items]:
    """Sets of its items that a batch could defer, none of them `carried` from before: first none, and never all."""
    yield {}
    total = sum(items.values()) + sum(carried.values())
    excess = total - (total + sum(sum(later.values()) for later in rest)) / (len(rest) + 1)
    rising = sorted(items, key=lambda item: (items[item], item))
    sets = [take_while_fits(items, rising, excess), take_while_fits(items, rising[::-1], excess)]
    shortest = {i for a in assignments(plan, plan.steps[0].micro_batches[-1]) for i in a.items}
    sets.append({item: size for item, size in items.items() if item in shortest})
    tried: list[Items] = [{}]
    for deferred in sets:
        if deferred not in tried and len(deferred) < len(items) + len(carried):
            tried.append(deferred)
            yield deferred


def take_while_fits(items: Items, order: list[int], tokens: float) -> Items:
    """Take items in this order while they fit within so many tokens."""
    taken: Items = {}
    for item in order:
        if items[item] <= tokens:
            taken[item] = items[item]
            tokens -= items[item]
    return taken


def without(items: Items, deferred: Items) -> Items:
    return {item: size for item, size in items.items() if item not in deferred}
