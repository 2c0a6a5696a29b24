"""A module whose attention windows are so short that mean sequences attend to no more than the real ones do.

Sequences of the mean length over tokens have as many tokens and token pairs as the real ones. Within a window they have
more pairs, since pairs per token grow ever more slowly with length; so a shorter window stands for it in a bound.
"""

from planner.costs import WindowTerm
from planner.layouts.space.layout_fields import TrainingSetup
from planner.specs.base import with_fields
from planner.specs.layers import Module

MOST_FILL = 1e9  # tokens: more than any kernel works beside its pairs


def with_equivalent_window(trained: TrainingSetup) -> Module:
    """The module with the longest such window; itself where it has none, or sequences are equal."""
    module = trained.module
    windows = {module.window_of(layer) for layer in range(module.layers)} - {None}
    if not windows or trained.equal_lengths:
        return module
    low, high = 1, max(each for each in windows if each is not None)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if attends_to_no_more(trained, middle) else (low, middle - 1)
    return with_fields(module, window=low)


def attends_to_no_more(trained: TrainingSetup, window: int) -> bool:
    """Whether mean sequences within this window have no more pairs than the real ones in the module's, in all and per
    token of a query.
    """
    module = trained.module
    whole = max(each for layer in range(module.layers) if (each := module.window_of(layer)))

    def seconds(width: int, fill: float, size: float) -> float:
        return WindowTerm(1.0, fill, width, module.causal).item_seconds(size)

    return all(
        seconds(window, fill, trained.mean_tokens) * trained.mean_sequences
        <= sum(seconds(whole, fill, size) for size in trained.sizes)
        for fill in (0.0, MOST_FILL)
    )
