"""What the hand-made zero-bubble orders share (Qi et al., arXiv 2401.10241, section 2).

Backward is I, the gradient of the inputs, for which the stage before waits, and W, the gradient of the weights, for
which nobody waits before the update: so I alternates with F as B does in 1F1B, and W fills what would be idle.
"""


def order(warm_up: int, late: int, micro_batches: int) -> list[tuple[str, int]]:
    """F and I alternate after `warm_up` forwards; each W comes `late` micro-batches behind its I.

    A rank holds min(warm_up + 1 + late, micro_batches) micro-batches, those included that only W still needs.
    """
    warm_up, slots = min(warm_up, micro_batches), list[tuple[str, int]]()
    slots += [("F", i) for i in range(warm_up)]
    for i in range(micro_batches):
        if warm_up + i < micro_batches:
            slots.append(("F", warm_up + i))
        slots.append(("I", i))
        if i >= late:
            slots.append(("W", i - late))
    return slots + [("W", i) for i in range(max(0, micro_batches - late), micro_batches)]
