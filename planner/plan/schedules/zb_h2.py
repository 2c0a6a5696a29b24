"""ZB-H2: twice the warm-up of 1F1B, and W delayed twice as long as in ZB-H1 (arXiv 2401.10241, section 2.3.2).

Each stage holds min(2p − 1, m) micro-batches at its peak. With T_F = T_I = T_W and m ≥ 2p − 1 no rank waits between its
first pass and its last; ranks start and end T_F apart, so that consecutive steps have no bubble between them.
"""

from planner.plan.schedules.zero_bubble import zero_bubble_slots


def slots(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    return zero_bubble_slots(2 * (stages - 1 - stage), 2 * stage, micro_batches)
