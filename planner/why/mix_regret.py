"""Which of several sets of layouts is best for all mixes of the data, by what each takes at each mix.

The regret of layouts at a mix is what they take there over what the quickest ones take there, less 1. The chosen ones
have the least worst regret over mixes (minimax regret, Savage 1951), or take least over all steps of the schedule;
layouts that do not fit into memory at some mix cannot be chosen, but are what others are compared with elsewhere.
"""

from collections.abc import Sequence
from typing import Literal, get_args

Regret = Literal["worst", "expected"]
REGRETS: tuple[Regret, ...] = get_args(Regret)
Seconds = tuple[float | None, ...]  # of one set of layouts at each mix; None: they do not fit


def quickest(table: Sequence[Seconds]) -> tuple[int, ...]:
    """The quickest layouts at each mix; of equals the first. Every mix has some that fit."""
    return tuple(
        min((number for number, of_step in enumerate(of_mix) if of_step is not None), key=lambda n: key_of(of_mix[n]))
        for of_mix in zip(*table, strict=True)
    )


def key_of(seconds: float | None) -> float:
    """Seconds to compare by; infinite where layouts do not fit."""
    return float("inf") if seconds is None else seconds


def least_seconds(table: Sequence[Seconds]) -> tuple[float, ...]:
    """What the quickest layouts take at each mix."""
    return tuple(key_of(table[number][at]) for at, number in enumerate(quickest(table)))


def regrets(seconds: Seconds, least: Sequence[float]) -> Seconds:
    """What layouts take at each mix over the least there, less 1."""
    return tuple(
        None if of_step is None else of_step / best - 1.0 for of_step, best in zip(seconds, least, strict=True)
    )


def worst_regret(seconds: Seconds, least: Sequence[float]) -> float | None:
    """The greatest regret over mixes; None where layouts do not fit at one."""
    fitting = [regret for regret in regrets(seconds, least) if regret is not None]
    return max(fitting) if len(fitting) == len(seconds) else None


def expected_regret(seconds: Seconds, least: Sequence[float], weights: Sequence[float]) -> float | None:
    """What layouts take over all steps, over what the quickest of each mix take, less 1; None where they do not fit at
    one. `weights`: steps of each mix.
    """
    fitting = [of_step for of_step in seconds if of_step is not None]
    if len(fitting) < len(seconds):
        return None
    return total(fitting, weights) / total(least, weights) - 1.0


def total(seconds: Sequence[float], weights: Sequence[float]) -> float:
    """Seconds of all steps together; `weights`: steps of each mix."""
    return sum(of_step * weight for of_step, weight in zip(seconds, weights, strict=True))


def ranking(table: Sequence[Seconds], weights: Sequence[float], by: Regret) -> tuple[int, ...]:
    """The layouts by this regret, least first, so that the first are the chosen ones; of equals those with less of the
    other, then as given. Layouts that do not fit at some mix come last.
    """
    least = least_seconds(table)

    def key(number: int) -> tuple[float, float, int]:
        worst = key_of(worst_regret(table[number], least))
        expected = key_of(expected_regret(table[number], least, weights))
        return (worst, expected, number) if by == "worst" else (expected, worst, number)

    return tuple(sorted(range(len(table)), key=key))
