"""1F1B: warm up with as many forwards as stages follow, then alternate (PipeDream-flush, arXiv 2006.09503).

Stage s of p holds min(p − s, m) micro-batches at its peak.
"""


def slots(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    warm_up = min(stages - 1 - stage, micro_batches)
    order = [("F", i) for i in range(warm_up)]
    for i in range(micro_batches - warm_up):
        order += [("F", warm_up + i), ("B", i)]
    return order + [("B", i) for i in range(micro_batches - warm_up, micro_batches)]
