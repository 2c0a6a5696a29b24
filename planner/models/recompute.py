"""Activations that are made again for the backward pass (arXiv 2205.05198): full keeps a layer's input alone.

Selective keeps what is dear to make: the input, queries, keys, values and the output of attention, and the residual
behind it. A norm's output is made again from its input, without the matrices behind it; the MLP from the residual.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from planner.models.saved import Back, kept, saving

Make = Callable[[Tensor], Tensor]


def whole(run: Callable[..., Tensor], *inputs: object) -> Tensor:
    """Run it, keeping nothing but its inputs. Collectives inside it are issued again in the backward pass."""
    made: Tensor = checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False)
    return made


class Recipe:
    """How to make a value again that several products save: once for all of them."""

    def __init__(self, value: Tensor, make: Back) -> None:
        self.value: Tensor | None = value  # until the forward is over
        self.make, self.uses = make, 0
        self.made: Tensor | None = None

    def is_of(self, x: Tensor) -> bool:
        y = self.value
        return y is not None and (x.data_ptr(), x.shape, x.stride()) == (y.data_ptr(), y.shape, y.stride())

    def use(self) -> Back:
        """In place of the value."""
        self.uses += 1
        return self.again

    def again(self) -> Tensor:
        if self.made is None:
            with torch.no_grad():
                self.made = self.make()
        made, self.uses = self.made, self.uses - 1
        if self.uses <= 0:
            self.made = None
        return made


_recipes: ContextVar[list[Recipe] | None] = ContextVar("recipes", default=None)


@contextmanager
def made_again(make: Make, x: Tensor) -> Iterator[Tensor]:
    """make(x), of which forwards within save nothing; x is kept however others keep it."""
    back = kept(x)
    value = make(x)
    recipes = [Recipe(value, lambda: make(back()))]
    token = _recipes.set(recipes)

    def pack(saved: Tensor) -> Back | None:
        return next((recipe.use() for recipe in recipes if recipe.is_of(saved)), None)

    try:
        with saving(pack):
            yield value
    finally:
        _recipes.reset(token)
        for recipe in recipes:
            recipe.value = None


def follow(make: Make, x: Tensor) -> Tensor:
    """make(x), made again wherever x is."""
    value, recipes = make(x), _recipes.get() or []
    source = next((recipe for recipe in recipes if recipe.is_of(x)), None)
    if source is not None and not source.is_of(value):
        recipes.append(Recipe(value, lambda: make(source.make())))
    return value
