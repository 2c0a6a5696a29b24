"""Small pipelines for tests, and every order that they have."""

from collections.abc import Iterator
from itertools import product
from random import Random

from planner.orders import Order, Pipeline, held_peak

NARROW, WIDE = 1.0, 3.0  # micro-batches of memory


def made_up(seed: int, stages: int, micro_batches: int, room: float | None = None) -> Pipeline:
    """All seconds and bytes different; `room`: how many of the largest micro-batches a stage holds."""
    chance = Random(seed)

    def rows(low: float, high: float, count: int = stages) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(chance.uniform(low, high) for _ in range(micro_batches)) for _ in range(count))

    held = rows(1.0, 3.0)
    shares = rows(0.0, 1.0)
    rooms = [chance.uniform(NARROW, WIDE) if room is None else room for _ in range(stages)]
    return Pipeline(
        forward=rows(0.5, 2.0),
        inputs=rows(0.5, 2.0),
        weights=rows(0.2, 2.0),
        ahead=rows(0.0, 0.7, stages - 1),
        back=rows(0.0, 0.7, stages - 1),
        held=held,
        kept=tuple(tuple(h * s for h, s in zip(*both, strict=True)) for both in zip(held, shares, strict=True)),
        cap=tuple(each * max(row) for each, row in zip(rooms, held, strict=True)),
        after=tuple(chance.uniform(0.0, 2.0) for _ in range(stages)),
    )


def words(micro_batches: int) -> Iterator[str]:
    """Every way to run F before I before W of each micro-batch, in sequence."""

    def grow(word: str) -> Iterator[str]:
        counts = [word.count(letter) for letter in "FIW"]
        if counts == [micro_batches] * 3:
            yield word
        for letter, count, most in zip("FIW", counts, [micro_batches, *counts], strict=False):
            if count < most:
                yield from grow(word + letter)

    yield from grow("")


def all_orders(pipeline: Pipeline) -> Iterator[Order]:
    """Every order that memory allows."""
    every = [*words(pipeline.micro_batches)]
    blank = [every[0]] * pipeline.stages
    allowed = [
        [w for w in every if held_peak(pipeline, tuple([*blank[:s], w, *blank[s + 1 :]]), s) <= cap * (1 + 1e-9)]
        for s, cap in enumerate(pipeline.cap)
    ]
    yield from product(*allowed)
