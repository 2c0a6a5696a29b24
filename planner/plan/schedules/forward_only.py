"""Forwards only, as for an evaluation: no activations are kept, no gradients reduced, no weights updated."""


def slots(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    return [("F", i) for i in range(micro_batches)]
