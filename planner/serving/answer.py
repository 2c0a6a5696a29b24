"""The answer about a model that is served: the best split of each family in each order, and the best of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from planner.callbacks import OnProgress, silent
from planner.errors import Infeasible
from planner.serving.best_split import Found, best_split, family_splits
from planner.serving.elastic import ElasticAnswer, elastic_answer
from planner.serving.goodput import Question
from planner.serving.served_inputs import Asked, ServedInputs
from planner.serving.splits import FAMILIES, Split
from planner.simulate.serving import QueueOrder, ServingHistory
from planner.units import plural

MOST_TIMES = 64  # times as many instances, up to which it is said how many would do


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """What a cluster serves, and how; `found` has all families in all orders that were asked for."""

    inputs: ServedInputs
    gpus: int
    found: tuple[Found, ...]
    best: Found
    history: ServingHistory  # of the best, at the rate of the requests
    front: tuple[Found, ...] = ()  # the best of fewer GPUs, fewest first
    elastic: ElasticAnswer | None = None  # what a policy has that changes the split; None: not asked for

    @property
    def split(self) -> Split:
        assert self.best.split
        return self.best.split

    @property
    def bound(self) -> float:
        """Requests a second that no split of the space sustains more of."""
        return max(each.bound for each in self.found)

    def usd(self, gpus: int) -> float | None:
        """Dollars an hour of so many GPUs."""
        whole = self.inputs.usd_per_hour
        return None if whole is None else whole * gpus / self.inputs.cluster.size


def answer(inputs: ServedInputs, asked: Asked, on_split: OnProgress = silent) -> ServingAnswer:
    """The best static answer, and what a policy has beside it. Raises Infeasible where no split is in time, or requests
    come quicker than any serves them: with how many GPUs would do.
    """
    question, gpus = inputs.question, inputs.cluster.size
    found = every_family(question, gpus, asked.orders, on_split)
    best = max(found, key=lambda each: each.goodput)
    if best.split is None:
        raise never_in_time(inputs)
    if best.goodput < question.rate and not asked.any_rate:
        raise too_fast(question, best, gpus)
    counts = [2**power for power in range(gpus.bit_length()) if asked.front and 2**power < gpus]
    fewer = [each for each in (every_family(question, count, asked.orders, on_split) for count in counts) if each]
    front = (max(each, key=lambda one: one.goodput) for each in fewer)
    history = question.history(best.split, best.order, min(1.0, best.goodput / question.rate))
    elastic = elastic_answer(question, best, found) if asked.elastic else None
    return ServingAnswer(inputs, gpus, (*found,), best, history, tuple(each for each in front if each.split), elastic)


def every_family(question: Question, gpus: int, orders: Sequence[QueueOrder], on_split: OnProgress) -> list[Found]:
    """The best of each family in each order; none of a family that so few GPUs do not make."""
    found = []
    for family in FAMILIES:
        splits = family_splits(question, family, gpus)
        found += [best_split(question, splits, order, on_split) for order in orders if splits]
    return found


def too_fast(question: Question, best: Found, gpus: int) -> Infeasible:
    """Requests come quicker than any split serves them: so many GPUs would do, of the best split so many times."""
    assert best.split
    message = f"{question.rate:.3g} requests a second come, and {plural(gpus, 'GPU')} serve {best.goodput:.3g} in time"
    times = ceil(question.rate / best.goodput)
    while times <= MOST_TIMES:
        more = best.split.times(times)
        if question.in_time(more, best.order, 1.0):
            fix = f"{more.gpus} GPUs would do ({more.text}); --any-rate asks for the goodput alone"
            return Infeasible(message, where="--requests", fix=fix)
        times += 1
    fix = f"over {MOST_TIMES * gpus:,} GPUs would be needed; --any-rate asks for the goodput alone"
    return Infeasible(message, where="--requests", fix=fix)


def never_in_time(inputs: ServedInputs) -> Infeasible:
    """Nobody is in time however few come: what the least times are."""
    question = inputs.question
    tp, prices = max(question.prices.items())
    middle = sorted(question.requests, key=lambda each: each.prompt_tokens)[len(question.requests) // 2]
    first = prices.iteration.prefill_seconds(middle.prompt_tokens)
    first += prices.encode.seconds(middle.images) if prices.encode and middle.images else 0.0
    step = prices.iteration.steps[1] + prices.iteration.cached_s * middle.prompt_tokens
    message = "no split serves enough requests in time, however few come"
    alone = f"alone at tp {tp}, a request of {middle.prompt_tokens} tokens has {first:.3g} s and {step:.3g} s a token"
    return Infeasible(message, where=f"{inputs.path} (service)", fix=f"a longer ttft_s or tpot_s: {alone}")
