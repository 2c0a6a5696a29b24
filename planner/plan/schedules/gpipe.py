"""GPipe: all forwards, then all backwards in the same order (Huang et al., arXiv 1811.06965).

Every rank holds all micro-batches at its peak.
"""


def slots(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    forwards = [("F", i) for i in range(micro_batches)]
    return forwards + [("B", i) for i in range(micro_batches)]
