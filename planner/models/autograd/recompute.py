"""Activations that are recomputed in the backward pass (arXiv 2205.05198). Full recompute keeps a layer's input alone.

Selective recompute keeps what is expensive: the input, queries, keys, values and output of attention, and the residual
after it. A norm's output is recomputed from its input, without the matrix products after it; the MLP from the residual.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from planner.models.autograd.saved_tensors import Restore, pack_saved_tensor, packing_saved_tensors

TensorFunction = Callable[[Tensor], Tensor]


def run_recomputed(run: Callable[..., Tensor], *inputs: object) -> Tensor:
    """Run a function, saving only its inputs (any shapes) for backward, where its collectives are issued again."""
    output: Tensor = checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False)
    return output


class RecomputedTensor:
    """A value that is recomputed once for all products that saved it."""

    def __init__(self, value: Tensor, make: Restore) -> None:
        self.value: Tensor | None = value  # until the end of the forward
        self.recompute, self.pending_uses = make, 0
        self.recomputed: Tensor | None = None

    def is_same_tensor(self, x: Tensor) -> bool:
        """Whether x (any shape) is this value: the same memory, shape and strides."""
        y = self.value
        return y is not None and (x.data_ptr(), x.shape, x.stride()) == (y.data_ptr(), y.shape, y.stride())

    def add_use(self) -> Restore:
        """How to restore one saved use of the value."""
        self.pending_uses += 1
        return self.restore

    def restore(self) -> Tensor:
        """The value (any shape), recomputed at its first use and dropped after the last."""
        if self.recomputed is None:
            with torch.no_grad():
                self.recomputed = self.recompute()
        value, self.pending_uses = self.recomputed, self.pending_uses - 1
        if self.pending_uses <= 0:
            self.recomputed = None
        return value


_recipes: ContextVar[list[RecomputedTensor] | None] = ContextVar("recipes", default=None)


@contextmanager
def recomputing(make: TensorFunction, x: Tensor) -> Iterator[Tensor]:
    """Gives make(x), of x's shape or another, which forwards in the block do not save but recompute; x is saved by the
    usual hooks.
    """
    restore = pack_saved_tensor(x)
    value = make(x)
    recipes = [RecomputedTensor(value, lambda: make(restore()))]
    token = _recipes.set(recipes)

    def pack(saved: Tensor) -> Restore | None:
        return next((recipe.add_use() for recipe in recipes if recipe.is_same_tensor(saved)), None)

    try:
        with packing_saved_tensors(pack):
            yield value
    finally:
        _recipes.reset(token)
        for recipe in recipes:
            recipe.value = None


def recompute_along(make: TensorFunction, x: Tensor) -> Tensor:
    """Return make(x), recomputed wherever x (any shape) is."""
    value, recipes = make(x), _recipes.get() or []
    recomputed = next((recipe for recipe in recipes if recipe.is_same_tensor(x)), None)
    if recomputed is not None and not recomputed.is_same_tensor(value):
        recipes.append(RecomputedTensor(value, lambda: make(recomputed.recompute())))
    return value
