"""Backward in two passes (zero bubble, arXiv 2401.10241): I is the gradients of inputs, W those of weights, later.

Forwards run within `deferring(store)`. Their matrix products then hand on the gradient of their input alone, and leave
what W needs, the input and the gradient of the output, in the store; everything else that has parameters (norms,
biases, embeddings) is cheap, and has its gradients in I. W multiplies what was stored.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Product(Protocol):
    """y of x and a weight, linear in both."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """y."""

    def of_input(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of x, from that of y."""

    def of_weight(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of the weight."""


class Matrix:
    """y [t, out] = x [t, width] W^T."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight)

    def of_input(self, gradient: Tensor, weight: Tensor) -> Tensor:
        return gradient @ weight

    def of_weight(self, gradient: Tensor, x: Tensor) -> Tensor:
        return gradient.t() @ x


MATRIX = Matrix()


class Left(NamedTuple):
    """What I leaves of one product."""

    product: Product
    weight: Tensor
    x: Tensor
    gradient: Tensor  # of y


class Store:
    """Of one micro-batch on its way through a chunk of layers: from its I to its W."""

    def __init__(self) -> None:
        self.left: deque[Left] = deque()

    def add_up(self) -> None:
        """W: add the gradients of weights to those that are there, and keep nothing. A weight may be a view of one."""
        while self.left:
            product, weight, x, gradient = self.left.popleft()
            torch.autograd.backward(weight, product.of_weight(gradient, x))


_store: ContextVar[Store | None] = ContextVar("store", default=None)


@contextmanager
def deferring(store: Store | None) -> Iterator[None]:
    """Where the products of these forwards leave what W needs; None: backward is whole."""
    token = _store.set(store)
    try:
        yield
    finally:
        _store.reset(token)


def multiply(x: Tensor, weight: Tensor, product: Product = MATRIX) -> Tensor:
    """y of x and a weight, whose gradient comes now or later."""
    store = _store.get()
    if store is None or not torch.is_grad_enabled():
        return product.forward(x, weight)
    y: Tensor = _Apart.apply(x, weight, product, store)  # type: ignore[no-untyped-call]
    return y


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b. The bias is never deferred."""
    if _store.get() is None:
        return F.linear(x, weight, bias)
    y = multiply(x, weight)
    return y if bias is None else y + bias


class _Apart(torch.autograd.Function):
    """A product whose backward leaves out the weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, product: Product, store: Store) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.product, ctx.store = product, store
        return product.forward(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight = ctx.saved_tensors
        ctx.store.left.append(Left(ctx.product, weight, x.detach(), gradient))
        return ctx.product.of_input(gradient, weight) if ctx.needs_input_grad[0] else None, None, None, None
