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
from planner.serving.splits import Split
from planner.simulate.serving import (
    InstanceSpec,
    QueueOrder,
    ServingClock,
    ServingDecide,
    ServingHistory,
    ServingSetup,
)
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request, at_rate, rate_of

WITHIN = 0.01  # a goodput that is found is at most this share below the greatest
SLOWEST = 2.0**-10  # of the bound, below which nothing is looked for
LASTS = 10.0  # times as long as a request that is barely in time, that a run lasts
MOST_RUN = 4000  # requests to which a file is repeated at most


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

    def clock(self, split: Split, order: QueueOrder, times: float) -> ServingClock:
        """The clock of a split, of requests that come so many times as fast."""
        fleet = [InstanceSpec(own.stages, self.prices[own.tp]) for own in split.shares for _ in range(own.instances)]
        setup = replace(self.setup, order=order, answers=split.answers, tokens=split.tokens, chunked=split.chunked)
        return ServingClock(at_rate(self.requests, times), fleet, setup, self.prices)

    def in_time(self, split: Split, order: QueueOrder, times: float, decide: ServingDecide | None = None) -> bool:
        """Whether enough requests are in time."""
        clock = self.clock(split, order, times)
        clock.measure(self.service)
        return not clock.run(decide).stopped

    def history(
        self, split: Split, order: QueueOrder, times: float, decide: ServingDecide | None = None
    ) -> ServingHistory:
        """All requests, served by a split."""
        clock = self.clock(split, order, times)
        clock.recording = True
        return clock.run(decide)

    def lasting(self, times: float, seconds: float = 0.0, most: int = MOST_RUN) -> "Question":
        """The question with requests that last long enough, and so many seconds, when they come so many times as
        fast.
        """
        tokens = sum(each.output_tokens for each in self.requests) / len(self.requests)
        wanted = max(seconds, LASTS * (self.service.ttft_s + self.service.tpot_s * tokens)) * times
        span = self.requests[-1].arrival_s or 1.0
        count = min(ceil(wanted / span), most // len(self.requests))
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
