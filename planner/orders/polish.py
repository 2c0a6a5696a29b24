"""An order improved by changing neighbours: every two slots that follow each other on a stage, while that helps."""

from planner.orders.anneal import lawful, worth
from planner.orders.problem import CLOSE, Objective, Order, Pipeline

SWEEPS = 3


def polish(pipeline: Pipeline, objective: Objective, order: Order, floor: float) -> Order:
    """An order at least as good."""
    now, (score, seconds) = order, worth(pipeline, objective, order)
    for _ in range(SWEEPS):
        before = score
        for s in range(pipeline.stages):
            for place in range(3 * pipeline.micro_batches - 1):
                word = now[s]
                if seconds <= floor * (1 + CLOSE):
                    return now
                if word[place] == word[place + 1]:
                    continue
                word = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
                if not lawful(pipeline, s, word):
                    continue
                changed = (*now[:s], word, *now[s + 1 :])
                found, took = worth(pipeline, objective, changed)
                if found < score and took <= seconds:
                    now, score, seconds = changed, found, took
        if score == before:
            break
    return now
