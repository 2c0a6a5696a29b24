"""What changing the split while requests come is worth: the goodput of a policy beside the best static split's, of the
same requests. It begins with that split, or with the best of another family that it can change; and as many static
splits are tried on these requests.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from planner.policies import ElasticServing
from planner.serving.best_split import Found
from planner.serving.goodput import WITHIN, Question, greatest
from planner.serving.split_bounds import SplitBounds
from planner.serving.splits import Split
from planner.simulate.serving import QueueOrder, ServingHistory
from planner.specs.workload.requests.request import at_rate

LEAST_SECONDS = 60.0  # of a run: a policy has to see what comes before it moves
MOST_RUN = 10_000  # requests of a run
NEAR = 0.8  # of what the best split has, from where on the policy's goodput is looked for first


@dataclass(frozen=True, slots=True)
class ElasticAnswer:
    """What a policy has of goodput, in requests a second, and what it did at that rate."""

    question: Question  # its requests are those that were served
    order: QueueOrder
    start: Split
    goodput: float
    still: float  # goodput of the best static split, of these requests
    history: ServingHistory

    @property
    def moves_a_minute(self) -> float:
        return self.history.moves / max(self.history.done) * 60.0


def elastic_answer(question: Question, best: Found, found: Iterable[Found]) -> ElasticAnswer:
    """A policy in the order of the best split."""
    order, bounds = best.order, SplitBounds(question)
    others = [each.split for each in found if each.order == order and each.split and len(each.split.shares) > 1]
    split = best.split
    assert split
    starts = [split, *(each for each in others if each != split)]
    most = {start: bounds.pooled(start) for start in starts}
    long = question.lasting(best.goodput / question.rate, LEAST_SECONDS, MOST_RUN)
    near = NEAR * best.goodput / question.rate

    def changing(start: Split, times: float) -> bool:
        return long.in_time(start, order, times, ElasticServing(question.service))

    def unchanged(start: Split, times: float) -> bool:
        return long.in_time(start, order, times)

    def most_of(passes: Callable[[Split, float], bool]) -> tuple[Split, float]:
        start, times = split, greatest(partial(passes, split), near if passes(split, near) else 0.0, most[split])
        for each in starts[1:]:
            needed = times * (1.0 + WITHIN)
            if needed < most[each] and passes(each, needed):
                start, times = each, greatest(partial(passes, each), needed, most[each])
        return start, times

    (start, times), (_, still) = most_of(changing), most_of(unchanged)
    history = long.history(start, order, times or 1.0, ElasticServing(question.service))
    served = replace(long, requests=at_rate(long.requests, times or 1.0))
    return ElasticAnswer(served, order, start, times * question.rate, still * question.rate, history)
