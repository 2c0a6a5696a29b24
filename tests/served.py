"""Requests drawn at random, and prices of instances on which seconds can be computed by hand."""

from random import Random

from planner.costs.serving import EncodePrices, IterationPrices, StagePrices, line_table
from planner.simulate.serving import NEVER, ServingClock
from planner.specs.workload.requests.request import Request


def prices(
    encode=(0.01, 1e-5, 1e-9), prefill=(0.005, 5e-6, 1e-10), decode=(0.005, 2e-5, 2e-8), kv=200_000, move=(0.001, 1e-8)
):
    """Straight lines: seconds once, for each token, and for each pair or cached token."""
    iteration = IterationPrices(line_table(*decode[:2]), line_table(*prefill[:2]), prefill[2], decode[2])
    images = EncodePrices(line_table(*encode[:2]), encode[2]) if encode else None
    return StagePrices(1, images, iteration, kv, kv * 9 // 10, *move, 0.5, "by hand", 0.1)


PRICES = prices()


def drawn(count, rate, seed=0, images=0.5, repeated=0.3, most=2000):
    """Requests of a Poisson process; some have images, of which some come again."""
    random, at, found = Random(seed), 0.0, []
    for number in range(count):
        at += random.expovariate(rate)
        named = [random.randrange(8) if random.random() < repeated else 1000 * number + each for each in range(2)]
        named = named[: random.choice((1, 2))] if random.random() < images else []
        found.append(
            Request(
                str(number), at, random.randrange(1, most), random.randrange(1, 200),
                tuple(200 + each % 7 * 100 for each in named), tuple(f"i{each}" for each in named),
                tuple(f"b{random.randrange(2)}.{block}" for block in range(random.randrange(3))) if most > 1600 else (),
            )
        )  # fmt: skip
    return [each._replace(prefix=each.prefix[: each.prompt_tokens // 512]) for each in found]


class WatchedClock(ServingClock):
    """A clock that holds the laws of a server at every event."""

    def ended(self, instance, now):
        for each in self.instances:
            assert 0 <= each.kv_used <= each.kv_room
            assert len(each.answers) <= self.setup.answers
        super().ended(instance, now)


def require_served(history):
    """Each request ended once, and everything happened in its order."""
    for number, request in enumerate(history.requests):
        each = history.served(number)
        assert request.arrival_s <= each.prefill < each.first <= each.done
        if request.output_tokens > 1:
            assert each.first <= each.joined <= each.done and each.first < each.done
        else:
            assert each.first == each.done
        if each.encode != NEVER:
            assert request.images and request.arrival_s <= each.encode < each.encoded <= each.first
