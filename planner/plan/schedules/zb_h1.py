"""ZB-H1: 1F1B whose last stages delay W, in the memory of 1F1B's first stage (arXiv 2401.10241, section 2.3.1).

Stage s of p warms up as in 1F1B and delays W by s micro-batches, so that each holds min(p, m) at its peak. The bubble
is (p − 1)·(T_F + T_I − T_W) where m ≥ p and W takes no longer than F and I do.
"""

from planner.plan.schedules.zero_bubble import zero_bubble_slots


def slots(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    return zero_bubble_slots(stages - 1 - stage, stage, micro_batches)
