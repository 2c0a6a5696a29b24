"""Layers of two modules on the stages of one pipeline, so that the stage with most has as little as can be: exactly.

Stage s takes b_s + e · n_s + l · m_s seconds with n_s layers of an encoder, on the first stages alone, and m_s of the
LLM. A limit on it can be kept where, over n_1 … n_s with a given sum, the most layers of the LLM that have room,

    most_s(n) = max over n_s ≥ 1 of most_{s−1}(n − n_s) + ⌊(limit − b_s − e · n_s) / l⌋    each term at least one,

are all that it has. The least limit of all sums that a stage can have is found by halving.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

ROUNDING = 1e-9  # of a layer of the LLM, within which sums of seconds are equal


class Layered(NamedTuple):
    """A module that is divided: its layers, seconds of each, and the stages, first ones, that have some."""

    layers: int
    seconds: float
    stages: int


class Division(NamedTuple):
    """Layers of encoder and LLM on each stage, and the seconds of the one that has most."""

    seconds: float
    encoder: tuple[int, ...]
    llm: tuple[int, ...]


def level_division(encoder: Layered, llm: Layered, beside: Sequence[float]) -> Division:
    """The division with the least maximum; `beside`: seconds of each of the LLM's stages for other work. Of equal ones
    that whose encoder is divided evenly, as far as that is one. Every stage of a module has a layer of it.
    """
    sums = {
        each + encoder.seconds * some + llm.seconds * others
        for each in {*beside}
        for some in range(encoder.layers + 1)
        for others in range(1, llm.layers + 1)
    }
    limits = sorted(sums)
    least = bisect_left(limits, True, key=lambda limit: encoder_counts(encoder, llm, beside, limit) is not None)
    counts = encoder_counts(encoder, llm, beside, limits[least])
    assert counts, "a stage may have all"
    taken = [each + encoder.seconds * count for each, count in zip(beside, counts, strict=True)]
    room = [llm_room(llm, limits[least] - each) for each in taken]
    while sum(room) > llm.layers:
        most = max(
            (s for s in range(llm.stages) if room[s] > 1), key=lambda s: (taken[s] + llm.seconds * room[s], s)
        )
        room[most] -= 1
    seconds = max(each + llm.seconds * count for each, count in zip(taken, room, strict=True))
    return Division(seconds, tuple(counts[: encoder.stages]), tuple(room))


def llm_room(llm: Layered, seconds: float) -> int:
    """Layers of the LLM that take no longer, of all that it has."""
    return min(llm.layers, int(seconds / llm.seconds + ROUNDING)) if seconds > 0.0 else 0


def encoder_counts(encoder: Layered, llm: Layered, beside: Sequence[float], limit: float) -> list[int] | None:
    """The encoder's layers on each stage that leave most room for the LLM's within the limit; None where that is not
    enough.
    """
    even = encoder.layers / encoder.stages
    found: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # layers so far → most of the LLM, those of each stage
    for stage, each in enumerate(beside):
        tried = range(1, encoder.layers + 1) if stage < encoder.stages else range(1)
        room = [(count, llm_room(llm, limit - each - encoder.seconds * count)) for count in tried]
        able = sorted(((count, most) for count, most in room if most), key=lambda one: abs(one[0] - even))
        further: dict[int, tuple[int, list[int]]] = {}
        for before, (layers, counts) in found.items():
            for count, most in able:
                total = before + count
                if total <= encoder.layers and layers + most > further.get(total, (0, []))[0]:
                    further[total] = layers + most, [*counts, count]
        found = further
    most, counts = found.get(encoder.layers, (0, []))
    return counts if most >= llm.layers else None
