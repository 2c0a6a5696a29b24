"""The short stack of layers that stands for a module's: of layers with and without a window it has both kinds.

Such layers differ only in what grows with the square of an item: within a window of a few patches attention is next to
nothing beside the matrix products. So the squared term of the stack is that of its full layers alone, and the mean
layer of the module has its own share of it.
"""

from planner.specs.layers import Module


def squared_share(spec: Module, depth: int) -> float:
    """Return the squared term of a layer in the mean of the module, over that of a layer in the mean of the stack."""
    if spec.causal:  # a window that slides is long: attention in it is no part of the products
        return 1.0
    module, stack = (full_layers(each) / each.layers for each in (spec, spec.short_stack(depth)))
    return module / stack if stack else 1.0


def full_layers(spec: Module) -> int:
    """Return how many layers have full attention."""
    return sum(spec.window_of(layer) is None for layer in range(spec.layers))
