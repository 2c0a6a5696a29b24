"""Activations that are recomputed in the backward pass (arXiv 2205.05198). Full recompute keeps a layer's input alone.

Otherwise a layer recomputes some of its parts (specs/parallelism.py). A norm's output is recomputed from its input,
without the matrix products after it; attention's core from queries, keys and values; the MLP and the experts from their
input. Selective recompute is of norms and MLPs: it keeps what is expensive, the input, queries, keys, values and output
of attention, and the residual after it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from planner.models.autograd.saved_tensors import Restore, pack_saved_tensor, packing_saved_tensors
from planner.specs.parallelism import RecomputedPart

TensorFunction = Callable[[Tensor], Tensor]


_parts: ContextVar[frozenset[RecomputedPart]] = ContextVar("parts", default=frozenset())


@contextmanager
def recomputing_parts(parts: frozenset[RecomputedPart]) -> Iterator[None]:
    """Forwards in the block recompute these parts in backward: what `run_part` runs under their names."""
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)


def run_recomputed(run: Callable[..., Tensor], *inputs: object) -> Tensor:
    """Run a function, saving only its inputs (any shapes) for backward; parts within are not recomputed besides."""
    with recomputing_parts(frozenset()):
        output: Tensor = checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False)
    return output


def run_part(part: RecomputedPart, run: Callable[..., Tensor], *inputs: object) -> Tensor:
    """Run a part of a layer (inputs of any shapes), which is recomputed where the layer recomputes it: to its end, so
    that all ranks issue its collectives again, also those that keep less of it because they have no tokens.
    """
    if part not in _parts.get():
        return run(*inputs)
    with set_checkpoint_early_stop(False):
        return run_recomputed(run, *inputs)


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
    """Gives make(x), of any shape, which forwards in the block recompute; x is saved by the usual hooks."""
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
