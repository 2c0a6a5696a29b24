"""Deferral of items by one batch, which balances the batches of one static configuration.

The model: an item is trained in its own batch or in the next one, never later, and the last batch defers nothing, so
all items are trained in the end. Batches are decided first to last. Each defers nothing, or what exceeds the mean
tokens of the remaining batches (shortest or longest items first), or the items of its last micro-batch: whichever
minimizes the time of this batch and the next together. The effect on convergence is not priced.
"""

from collections.abc import Callable, Iterator, Sequence

from planner.plan.plan_file import Plan, assignments
from planner.specs.base import Spec
from planner.specs.workload.samples import SampleBatch

Items = dict[int, int]  # item → tokens
PlanBatch = Callable[[SampleBatch], Plan]


class Deferral(Spec, omit_defaults=False):
    """The static configuration when items may be deferred to the next batch."""

    seconds: tuple[float, ...]  # of each batch
    items: tuple[int, ...]  # that were deferred
    tokens: int  # of these items
    saved: float  # of all batches together, as a share of the static plan's seconds


def defer_items(batches: Sequence[SampleBatch], alone: Sequence[float], decide: PlanBatch) -> Deferral:
    """Defer items greedily, batch by batch. `alone`: seconds of each batch without it; `decide`: plans a batch."""
    seconds: list[float] = []
    all_deferred: Items = {}
    carried: Items = {}  # from the batch before
    plan = decide(batches[0])
    for number, batch in enumerate(batches[:-1]):
        rest = [other.items for other in batches[number + 1 :]]
        own, best = batch.items | carried, (float("inf"), plan, plan, Items())
        for deferred in candidates(batch.items, carried, rest, plan):
            now = decide(SampleBatch(without(own, deferred), ())) if deferred else plan
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


def candidates(own: Items, carried: Items, rest: list[Items], plan: Plan) -> Iterator[Items]:
    """Sets of its own items that a batch could defer: first none, and never all."""
    yield {}
    total = sum(own.values()) + sum(carried.values())
    excess = total - (total + sum(sum(items.values()) for items in rest)) / (len(rest) + 1)
    rising = sorted(own, key=lambda item: (own[item], item))
    sets = [take_while_fits(own, rising, excess), take_while_fits(own, rising[::-1], excess)]
    shortest = {i for a in assignments(plan, plan.steps[0].micro_batches[-1]) for i in a.items}
    sets.append({item: size for item, size in own.items() if item in shortest})
    tried: list[Items] = [{}]
    for deferred in sets:
        if deferred not in tried and len(deferred) < len(own) + len(carried):
            tried.append(deferred)
            yield deferred


def take_while_fits(items: Items, order: list[int], tokens: float) -> Items:
    """Take items in this order while they fit within so many tokens."""
    found: Items = {}
    for item in order:
        if items[item] <= tokens:
            found[item] = items[item]
            tokens -= items[item]
    return found


def without(items: Items, deferred: Items) -> Items:
    return {item: size for item, size in items.items() if item not in deferred}
