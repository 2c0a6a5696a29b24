"""How long a rank may not go on before it hangs: by what the plan predicts of its task, with room elsewhere."""

import math
from collections.abc import Mapping

from planner.launch import BegunTask, HangLimits

LEAST_S = 8.0  # any task may take so long, and a process be stopped
PREDICTED_TIMES = 4.0  # or so many times its prediction
FIRST_STEP_S = 60.0  # more in the first step of a run, in which kernels are chosen and memory is mapped


def hang_limits(predicted: Mapping[str, float], given_s: float | None) -> HangLimits:
    """Limits where tasks are predicted to take so many seconds, by id; `given_s`: in their place.

    What is no task of the plan has none, as nothing says how long it takes: warm-up, reading items, waiting for a step
    that is planned meanwhile, saving, verification.
    """

    def task_s(begun: BegunTask, first_step: bool) -> float:
        if "/" not in begun.task:
            return math.inf
        seconds = given_s or max(LEAST_S, PREDICTED_TIMES * predicted.get(begun.task, math.inf))
        return seconds + FIRST_STEP_S * first_step

    return HangLimits(given_s or LEAST_S, task_s)
