"""Improve an order by moving slots: neighbours are swapped while that helps; then moves are drawn, of which a slightly
worse order is accepted too, ever less so (threshold accepting).

A drawn move shifts a slot within its stage or swaps it with another. Moves that break the precedence of passes or
exceed the memory are not timed. Work is counted in slots that were looked at.
"""

from math import inf
from random import Random

from planner.moves import ThresholdAccepting
from planner.orders.pipeline_problem import OPTIMAL_WITHIN, Order, OrderObjective, PipelineProblem
from planner.orders.slot_timing import MEMORY_ROUNDING, slot_times, stage_spans

INITIAL_TOLERANCE = 0.001  # relative increase of the score that is accepted at the start
DISTANCES = (1, 1, 1, 2, 2, 3, 4, 6, 9)  # slots
SWAP_SHARE = 0.4  # share of moves that are swaps
MEAN_END_WEIGHT = 0.02  # weight in the score of the stages' mean end, beside that of the last one


def anneal(
    pipeline: PipelineProblem, objective: OrderObjective, order: Order, work: int, lower_bound: float, seed: int
) -> Order:
    """An order at least as good, after looking at up to `work` slots; stops at the lower bound."""
    p, slots = pipeline.stages, 3 * pipeline.micro_batches

    def moved(current: Order, draws: Random) -> Order | None:
        random = draws.random
        s = int(random() * p)
        word = move_slot(current[s], int(random() * slots), signed_distance(random()), random() < SWAP_SHARE)
        fits = word != current[s] and stage_order_fits(pipeline, s, word)
        return (*current[:s], word, *current[s + 1 :]) if fits else None

    search = ThresholdAccepting(
        moved,
        lambda current: seconds_and_score(pipeline, objective, current),
        INITIAL_TOLERANCE,
        lower_bound * (1 + OPTIMAL_WITHIN),
    )
    return search.best(order, work // (p * slots), Random(seed))


def signed_distance(draw: float) -> int:
    """The slots by which a move shifts one: a number of DISTANCES, forward or back; `draw` in [0, 1)."""
    place = int(draw * 2 * len(DISTANCES))
    return DISTANCES[place // 2] * (1 if place % 2 else -1)


def move_slot(slots: str, place: int, by: int, swap: bool) -> str:
    """A stage's slots with one moved `by` positions, or swapped with the slot there."""
    target = min(len(slots) - 1, max(0, place + by))
    changed = list(slots)
    if swap:
        changed[place], changed[target] = changed[target], changed[place]
    else:
        changed.insert(target, changed.pop(place))
    return "".join(changed)


def stage_order_fits(pipeline: PipelineProblem, s: int, slots: str) -> bool:
    """Whether F precedes I and I precedes W of each micro-batch, and activations never exceed the stage's capacity."""
    held = pipeline.activations[s]
    kept = pipeline.kept_for_weights[s]
    cap = pipeline.capacity[s] * (1 + MEMORY_ROUNDING)
    forwards = inputs = weights = 0
    activations = 0.0
    for letter in slots:
        if letter == "F":
            activations += held[forwards]
            forwards += 1
            if activations > cap:
                return False
        elif letter == "I":
            if inputs >= forwards:
                return False
            activations -= held[inputs] - kept[inputs]
            inputs += 1
        else:
            if weights >= inputs:
                return False
            activations -= kept[weights]
            weights += 1
    return True


def seconds_and_score(pipeline: PipelineProblem, objective: OrderObjective, order: Order) -> tuple[float, float]:
    """The objective in seconds, and the score by which moves are judged; both infinite for an order that deadlocks."""
    timing = slot_times(pipeline, order)
    if timing is None:
        return inf, inf
    if objective == "span":
        each = stage_spans(pipeline, order, timing)
    else:
        each = [end + after for end, after in zip(timing.ends, pipeline.tail_seconds, strict=True)]
    longest = max(each)
    return longest, longest + MEAN_END_WEIGHT * sum(each) / len(each)


SWEEPS = 3


def swap_neighbours(pipeline: PipelineProblem, objective: OrderObjective, order: Order, lower_bound: float) -> Order:
    """An order at least as good, by swaps of neighbouring slots of a stage; stops at the lower bound."""
    current, (seconds, score) = order, seconds_and_score(pipeline, objective, order)
    for _ in range(SWEEPS):
        before = score
        for s in range(pipeline.stages):
            for place in range(3 * pipeline.micro_batches - 1):
                slots = current[s]
                if seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
                    return current
                if slots[place] == slots[place + 1]:
                    continue
                slots = slots[:place] + slots[place + 1] + slots[place] + slots[place + 2 :]
                if not stage_order_fits(pipeline, s, slots):
                    continue
                changed = (*current[:s], slots, *current[s + 1 :])
                changed_seconds, changed_score = seconds_and_score(pipeline, objective, changed)
                if changed_score < score and changed_seconds <= seconds:
                    current, score, seconds = changed, changed_score, changed_seconds
        if score == before:
            break
    return current
