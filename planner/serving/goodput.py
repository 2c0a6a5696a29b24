"""The goodput of a split: the greatest rate of requests at which enough of them are in time (DistServe, arXiv
2401.09670), and that it can sustain (split_bounds.py). The requests are those of the file, so many times as fast.

A run that is short beside its requests flatters whoever is late: such a file is repeated, each time
with other images and prefixes. A split that is late at a rate is taken to be late at every higher one, so that the rate
is found by halving.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from planner.costs.serving import StagePrices
from planner.serving.splits import Split, setup_of
from planner.simulate.serving import InstanceSpec, ServingClock, ServingHistory, ServingSetup
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request, at_rate, rate_of

WITHIN = 0.01  # a goodput that is found is at most this share below the greatest
SLOWEST = 2.0**-10  # of the bound, below which nothing is looked for
LASTS = 10.0  # times as long as a request that is barely in time, that a run lasts
MOST_RUN = 4000  # requests to which a file is repeated at most
QUICK_RUN = 600  # requests of a run that tells soon what is late


@dataclass(frozen=True, slots=True)
class Question:
    """Requests, the service they are promised, what instances cost, and how all of them work."""

    requests: tuple[Request, ...]
    service: Service
    prices: Mapping[int, StagePrices]  # by tensor-parallel degree
    setup: ServingSetup

    @property
    def rate(self) -> float:
        """Requests a second, as the file has them."""
        return rate_of(self.requests)

    def quick(self) -> "Question":
        """The question with the first requests alone."""
        return replace(self, requests=self.requests[:QUICK_RUN])

    def lasting(self, times: float, seconds: float = 0.0) -> "Question":
        """The question with requests that last long enough, and so many seconds, when they come so many times as
        fast.
        """
        tokens = sum(each.output_tokens for each in self.requests) / len(self.requests)
        wanted = max(seconds, LASTS * (self.service.ttft_s + self.service.tpot_s * tokens)) * times
        span = self.requests[-1].arrival_s or 1.0
        count = min(ceil(wanted / span), MOST_RUN // len(self.requests))
        return replace(self, requests=repeated(self.requests, count)) if count > 1 else self


def repeated(requests: Sequence[Request], count: int) -> tuple[Request, ...]:
    """The requests so many times, one file after the other; nothing of one is in another."""
    span = requests[-1].arrival_s * len(requests) / max(1, len(requests) - 1)
    return tuple(
        each._replace(
            id=f"{each.id}.{turn}",
            arrival_s=each.arrival_s + turn * span,
            image_hashes=tuple(f"{image}.{turn}" for image in each.image_hashes),
            prefix=tuple(f"{block}.{turn}" for block in each.prefix),
        )
        for turn in range(count)
        for each in requests
    )


def history_of(question: Question, split: Split, setup: ServingSetup, times: float = 1.0) -> ServingHistory:
    """All requests, served by a split."""
    clock = ServingClock(at_rate(question.requests, times), split.fleet(question.prices), setup_of(split, setup))
    clock.recording = True
    return clock.run()


def in_time(question: Question, fleet: Sequence[InstanceSpec], setup: ServingSetup, times: float) -> bool:
    """Whether enough requests are in time when all come so many times as fast."""
    clock = ServingClock(at_rate(question.requests, times), fleet, setup)
    clock.measure(question.service)
    return not clock.run().stopped


def greatest(passes: Callable[[float], bool], least: float, most: float) -> float:
    """The greatest number up to `most` that passes, nearly, where all below one that passes do; `least` is known to
    pass, or 0.
    """
    if passes(most):
        return most
    low, high, step = least, most, 2.0**0.25
    while not low:
        if high <= most * SLOWEST:
            return 0.0
        tried = max(high / step, most * SLOWEST)
        low, high = (tried, high) if passes(tried) else (0.0, tried)
        step *= step
    while high / low > 1.0 + WITHIN:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low
