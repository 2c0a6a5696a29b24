"""Small pipelines for tests, and every order that they have."""

from collections.abc import Iterator
from itertools import product
from math import inf
from random import Random

from planner.orders import Order, PipelineProblem, peak_activations

NARROW, WIDE = 1.0, 3.0  # micro-batches of memory


def made_up(seed: int, stages: int, micro_batches: int, room: float | None = None) -> PipelineProblem:
    """All seconds and bytes different; `room`: how many of the largest micro-batches a stage holds."""
    chance = Random(seed)

    def rows(low: float, high: float, count: int = stages) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(chance.uniform(low, high) for _ in range(micro_batches)) for _ in range(count))

    held = rows(1.0, 3.0)
    shares = rows(0.0, 1.0)
    rooms = [chance.uniform(NARROW, WIDE) if room is None else room for _ in range(stages)]
    return PipelineProblem(
        forward=rows(0.5, 2.0),
        input_grads=rows(0.5, 2.0),
        weight_grads=rows(0.2, 2.0),
        forward_sends=rows(0.0, 0.7, stages - 1),
        backward_sends=rows(0.0, 0.7, stages - 1),
        activations=held,
        kept_for_weights=tuple(
            tuple(h * s for h, s in zip(*both, strict=True)) for both in zip(held, shares, strict=True)
        ),
        capacity=tuple(each * max(row) for each, row in zip(rooms, held, strict=True)),
        tail_seconds=tuple(chance.uniform(0.0, 2.0) for _ in range(stages)),
    )


def uniform_pipeline(
    stages: int,
    micro_batches: int,
    seconds: tuple[float, float, float],
    transfer: float = 0.0,
    cap: float = float("inf"),
    memory: tuple[float, float] = (2.0, 1.0),
) -> PipelineProblem:
    """A pipeline whose stages and micro-batches are all alike.

    `seconds`: of F, I and W; `memory`: what F allocates, and the part of it that W releases. The default is that of the
    zero-bubble scheduler's own example: F allocates 2, I releases 1 and W the other.
    """
    forward, inputs, weights, held, kept = (((each,) * micro_batches,) * stages for each in (*seconds, *memory))
    sends = ((transfer,) * micro_batches,) * (stages - 1)
    return PipelineProblem(forward, inputs, weights, sends, sends, held, kept, (cap,) * stages, (0.0,) * stages)


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


def all_orders(pipeline: PipelineProblem) -> Iterator[Order]:
    """Every order that memory allows."""
    every = [*words(pipeline.micro_batches)]
    blank = [every[0]] * pipeline.stages
    allowed = [
        [w for w in every if peak_activations(pipeline, tuple([*blank[:s], w, *blank[s + 1 :]]), s) <= cap * (1 + 1e-9)]
        for s, cap in enumerate(pipeline.capacity)
    ]
    yield from product(*allowed)


Slots = tuple[tuple[str, int], ...]  # of one stage: letter and micro-batch


def labelled_words(micro_batches: int) -> Iterator[Slots]:
    """Every way to run F before I before W of each micro-batch, the micro-batches mixed up in any way."""

    def grow(slots: Slots) -> Iterator[Slots]:
        if len(slots) == 3 * micro_batches:
            yield slots
        for k in range(micro_batches):
            done = sum(number == k for _, number in slots)
            if done < 3:
                yield from grow((*slots, ("FIW"[done], k)))

    yield from grow(())


def labelled_fits(pipeline: PipelineProblem, s: int, slots: Slots) -> bool:
    now, held, kept = 0.0, pipeline.activations[s], pipeline.kept_for_weights[s]
    for letter, k in slots:
        now += {"F": held[k], "I": kept[k] - held[k], "W": -kept[k]}[letter]
        if now > pipeline.capacity[s] * (1 + 1e-9):
            return False
    return True


def labelled_seconds(pipeline: PipelineProblem, order: tuple[Slots, ...]) -> float:
    """What such an order takes, slot by slot from what each waits for; infinite where slots wait in a circle."""
    tables = {"F": pipeline.forward, "I": pipeline.input_grads, "W": pipeline.weight_grads}
    ends: dict[tuple[int, str, int], float] = {}
    free, at, last, moved = [0.0] * len(order), [0] * len(order), len(order) - 1, True
    while moved:
        moved = False
        for s, slots in enumerate(order):
            while at[s] < len(slots):
                letter, k = slots[at[s]]
                if letter == "F":
                    needed = (s - 1, "F", k) if s else None
                    sent = pipeline.forward_sends[s - 1][k] if s else 0.0
                elif letter == "I":
                    needed = (s, "F", k) if s == last else (s + 1, "I", k)
                    sent = 0.0 if s == last else pipeline.backward_sends[s][k]
                else:
                    needed, sent = (s, "I", k), 0.0
                if (needed and needed not in ends) or (letter == "I" and (s, "F", k) not in ends):
                    break
                start = max(free[s], ends[needed] + sent if needed else 0.0)
                ends[s, letter, k] = free[s] = start + tables[letter][s][k]
                at[s], moved = at[s] + 1, True
    if any(place < len(slots) for place, slots in zip(at, order, strict=True)):
        return inf
    return max(end + after for end, after in zip(free, pipeline.tail_seconds, strict=True))
