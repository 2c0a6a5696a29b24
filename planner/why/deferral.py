"""Items put off by one batch, so that batches of one static configuration come out alike.

Modelled: an item may be worked on in its own batch or in the next one, never later, and the last batch puts off
nothing, so that the same items are worked on in all. Batches are decided first to last. Each puts off nothing, or what
exceeds the mean tokens of the batches still to do (shortest or longest items first), or what is in its shortest
micro-batch: whichever makes this batch and the next one together shortest. What each update of the optimizer sees
changes with it, and that is not priced.
"""

from collections.abc import Callable, Iterator, Sequence

from planner.plan.model import Plan, assignments
from planner.specs.base import Spec
from planner.specs.lengths import Batch

Items = dict[int, int]  # item → tokens
Decide = Callable[[Batch], Plan]


class Deferral(Spec, omit_defaults=False):
    """The static configuration when items may wait for the next batch."""

    seconds: tuple[float, ...]  # of each batch
    items: tuple[int, ...]  # that waited
    tokens: int  # of theirs
    saved: float  # of all batches together, as a share of the static plan's seconds


def defer(batches: Sequence[Batch], alone: Sequence[float], decide: Decide) -> Deferral:
    """Greedily, batch by batch. `alone`: seconds of each batch as it is; `decide`: a plan of any batch."""
    taken: list[float] = []
    waited: Items = {}
    carried: Items = {}  # from the batch before
    plan = decide(batches[0])
    for number, batch in enumerate(batches[:-1]):
        rest = [other.items for other in batches[number + 1 :]]
        here, best = batch.items | carried, (float("inf"), plan, plan, Items())
        for put in candidates(batch.items, carried, rest, plan):
            now = decide(Batch(without(here, put), ())) if put else plan
            after = decide(Batch(rest[0] | put, ()))
            together = now.outcome.value + after.outcome.value
            if together < best[0] * (1 - 1e-12):
                best = (together, now, after, put)
        _, now, plan, carried = best
        taken.append(now.outcome.value)
        waited |= carried
    taken.append(plan.outcome.value)
    return Deferral(
        seconds=tuple(taken),
        items=tuple(sorted(waited)),
        tokens=sum(waited.values()),
        saved=1 - sum(taken) / sum(alone) if sum(alone) else 0.0,
    )


def candidates(own: Items, carried: Items, rest: list[Items], plan: Plan) -> Iterator[Items]:
    """What a batch could put off of its own items: nothing first, and never all that it has."""
    yield {}
    held = sum(own.values()) + sum(carried.values())
    excess = held - (held + sum(sum(items.values()) for items in rest)) / (len(rest) + 1)
    rising = sorted(own, key=lambda item: (own[item], item))
    puts = [first_of(own, rising, excess), first_of(own, rising[::-1], excess)]
    shortest = {i for a in assignments(plan, plan.steps[0].micro_batches[-1]) for i in a.items}
    puts.append({item: size for item, size in own.items() if item in shortest})
    tried: list[Items] = [{}]
    for put in puts:
        if put not in tried and len(put) < len(own) + len(carried):
            tried.append(put)
            yield put


def first_of(items: Items, order: list[int], tokens: float) -> Items:
    """As many items in this order as stay within so many tokens."""
    found: Items = {}
    for item in order:
        if items[item] <= tokens:
            found[item] = items[item]
            tokens -= items[item]
    return found


def without(items: Items, put: Items) -> Items:
    return {item: size for item, size in items.items() if item not in put}
