"""Forwards alone, as for an evaluation: nothing comes back, so nothing is kept for it, reduced or updated."""


def slots(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    return [("F", i) for i in range(micro_batches)]
