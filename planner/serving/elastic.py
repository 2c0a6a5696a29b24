"""What changing the split while requests come is worth: the goodput of a policy beside that of the best static splits.

The policy begins with instances as even as can be, and is told nothing of the best split.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.policies import ElasticServing
from planner.serving.best_split import Found
from planner.serving.goodput import Question, greatest
from planner.serving.split_bounds import SplitBounds
from planner.serving.splits import Share, Split, setup_of
from planner.simulate.serving import QueueOrder, ServingClock, ServingHistory
from planner.specs.workload.requests.request import at_rate

LEAST_SECONDS = 30.0  # of a run: a policy has to see what comes before it moves


@dataclass(frozen=True, slots=True)
class ElasticAnswer:
    """What a policy has of goodput, in requests a second, and what it did at that rate."""

    order: QueueOrder
    start: Split
    goodput: float
    history: ServingHistory

    @property
    def moves(self) -> int:
        return len(self.history.turns)

    @property
    def moves_a_minute(self) -> float:
        return self.moves / max(self.history.done) * 60.0


def elastic_answer(
    question: Question, best: Found, found: Iterable[Found], gpus: int, switch_s: float
) -> ElasticAnswer:
    """A policy in the order of the best split, with the degree and the limits of the best split of three stages."""
    like = next((each.split for each in found if each.split and each.family == "split"), None)
    tp = max(share.tp for share in like.shares) if like else min(question.prices)
    start = even_split(gpus // tp, tp, like.answers if like else 256)
    setup = setup_of(start, replace(question.setup, order=best.order, switch_s=switch_s))
    fleet = start.fleet(question.prices)

    bounds = SplitBounds(question.requests, question.service, question.prices, setup)
    most = bounds.pooled(start)
    long = question.lasting(most, LEAST_SECONDS)

    def passes(times: float) -> bool:
        clock = ServingClock(at_rate(long.requests, times), fleet, setup)
        clock.measure(question.service)
        return not clock.run(ElasticServing(question.service)).stopped

    times = greatest(passes, 0.0, most)
    clock = ServingClock(at_rate(long.requests, times or 1.0), fleet, setup)
    clock.recording = True
    return ElasticAnswer(best.order, start, times * question.rate, clock.run(ElasticServing(question.service)))


def even_split(instances: int, tp: int, answers: int) -> Split:
    """As many instances of each stage as can be, prefill first, then encoders."""
    each, rest = divmod(max(3, instances), 3)
    shares = (Share("e", each + (rest > 1), tp), Share("p", each + (rest > 0), tp), Share("d", each, tp))
    return Split("split", shares, answers, 8192)
