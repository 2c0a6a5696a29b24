"""The common form of the handcrafted zero-bubble schedules (Qi et al., arXiv 2401.10241, section 2).

Backward is I, the gradient of the inputs, for which the previous stage waits, and W, the gradient of the weights, which
is not needed before the update: so I alternates with F as B does in 1F1B, and W fills the bubbles.

F allocates activations; I frees what W does not need, and W the rest. W needs the inputs of the linear layers and the
gradients of their outputs: 32 of the 34 bytes that each element of the hidden size keeps in a transformer layer whose
attention keeps no matrix (arXiv 2401.10241, table 2; the 34 in arXiv 2205.05198, section 4.1). That is counted for a
GPT layer: four linear layers, an MLP four times as wide. It is assumed of every model, though one with gates, few key
heads, or experts keeps another share from I to W.
"""

KEPT_FOR_WEIGHTS = 32 / 34  # share of a forward's activations that is kept from I to W: of a GPT layer, assumed of all


def zero_bubble_slots(warm_up: int, late: int, micro_batches: int) -> list[tuple[str, int]]:
    """Return slots in which F and I alternate after `warm_up` forwards, and each W is `late` micro-batches after its I.

    A rank holds min(warm_up + 1 + late, micro_batches) micro-batches, including those that only W still needs.
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
