"""The short stack of layers that stands for a module's: of layers with and without a window it has one each.

Such layers differ only in what grows with the square of an item: within a window of a few patches attention is next to
nothing beside the matrix products. So the squared term of the stack is that of its full layer alone, and the mean layer
of the module has its own share of it.
"""

from planner.specs.base import with_fields
from planner.specs.layers import Module, Vit


def measured_stack(spec: Module, depth: int) -> Module:
    """Return the spec of the stack: `depth` layers, of which the last has full attention where some have a window."""
    if has_full_and_windows(spec):
        return with_fields(spec, layers=depth, full_layers=(depth - 1,))
    return with_fields(spec, layers=depth)


def squared_share(spec: Module, depth: int) -> float:
    """Return the squared term of a layer in the mean of the module, over that of a layer in the mean of the stack."""
    return len(spec.full_layers) / spec.layers * depth if has_full_and_windows(spec) else 1.0  # type: ignore[union-attr]


def has_full_and_windows(spec: Module) -> bool:
    """Return whether a vision tower has layers of both kinds."""
    return isinstance(spec, Vit) and spec.window is not None and 0 < len(spec.full_layers) < spec.layers
