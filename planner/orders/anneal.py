"""An order improved by moving slots about: one that is hardly worse is taken too, ever less so (threshold accepting).

A slot moves some places within its stage, or changes places with another; what breaks an order's laws or its memory is
not timed. Work is counted in slots that were looked at.
"""

from math import inf
from random import Random

from planner.orders.problem import CLOSE, Objective, Order, Pipeline
from planner.orders.timing import ROUNDING, stage_spans, times

HEAT = 0.001  # of what the order is worth: what a move may make it worse at the start
DISTANCES = (1, 1, 1, 2, 2, 3, 4, 6, 9)  # places
SWAPS = 0.4  # of the moves
MEAN = 0.02  # how much it counts when stages end on average, beside the last of them


def anneal(pipeline: Pipeline, objective: Objective, order: Order, work: int, floor: float, seed: int) -> Order:
    """An order at least as good."""
    chance = Random(seed).random
    p, slots = pipeline.stages, 3 * pipeline.micro_batches
    moves = work // (p * slots)
    now, best = order, order
    score, least = worth(pipeline, objective, now)
    for move in range(moves):
        if least <= floor * (1 + CLOSE):
            break
        s = int(chance() * p)
        word = moved(now[s], int(chance() * slots), distance(chance()), chance() < SWAPS)
        if word == now[s] or not lawful(pipeline, s, word):
            continue
        changed = (*now[:s], word, *now[s + 1 :])
        found, seconds = worth(pipeline, objective, changed)
        if found <= score * (1 + HEAT * chance() * (1 - move / moves)):
            now, score = changed, found
            if seconds < least:
                best, least = changed, seconds
    return best


def distance(chance: float) -> int:
    """One of DISTANCES, to one side or the other."""
    place = int(chance * 2 * len(DISTANCES))
    return DISTANCES[place // 2] * (1 if place % 2 else -1)


def moved(word: str, place: int, by: int, swap: bool) -> str:
    """A slot `by` places further on, or changed with the one there."""
    target = min(len(word) - 1, max(0, place + by))
    slots = list(word)
    if swap:
        slots[place], slots[target] = slots[target], slots[place]
    else:
        slots.insert(target, slots.pop(place))
    return "".join(slots)


def lawful(pipeline: Pipeline, s: int, word: str) -> bool:
    """F before I before W of each micro-batch, and never more held than the stage may hold."""
    held, kept, cap = pipeline.held[s], pipeline.kept[s], pipeline.cap[s] * (1 + ROUNDING)
    forwards = inputs = weights = 0
    now = 0.0
    for letter in word:
        if letter == "F":
            now += held[forwards]
            forwards += 1
            if now > cap:
                return False
        elif letter == "I":
            if inputs >= forwards:
                return False
            now -= held[inputs] - kept[inputs]
            inputs += 1
        else:
            if weights >= inputs:
                return False
            now -= kept[weights]
            weights += 1
    return True


def worth(pipeline: Pipeline, objective: Objective, order: Order) -> tuple[float, float]:
    """What counts for the search, and what the order is worth."""
    found = times(pipeline, order)
    if found is None:
        return inf, inf
    if objective == "span":
        each = stage_spans(pipeline, order, found)
    else:
        each = [end + after for end, after in zip(found.ends, pipeline.after, strict=True)]
    longest = max(each)
    return longest + MEAN * sum(each) / len(each), longest
