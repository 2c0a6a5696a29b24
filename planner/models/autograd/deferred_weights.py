"""Backward in two passes (zero bubble, arXiv 2401.10241): I computes gradients of inputs, W later those of weights.

Forwards run within `deferring_weight_gradients(store)`. Their matrix products then compute in I only the gradient of
their input, and store what W needs: the input and the gradient of the output. All other parameters (norms, biases,
embeddings) are cheap, and get their gradients in I.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class DeferrableProduct(Protocol):
    """A product y of x and a weight, linear in both."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product y `(rows, out)` of x `(rows, width)` and the weight."""

    def input_gradient(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of x, `(rows, width)`, from that of y, `(rows, out)`."""

    def weight_gradient(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of the weight, of its shape."""


class MatrixProduct:
    """The product y `(tokens, out)` = x `(tokens, width)` W^T, W `(out, width)`."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product y `(tokens, out)`."""
        return F.linear(x, weight)

    def input_gradient(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of x, `(tokens, width)`."""
        return gradient @ weight

    def weight_gradient(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of W, `(out, width)`."""
        return gradient.t() @ x


MATRIX_PRODUCT = MatrixProduct()


class DeferredProduct(NamedTuple):
    """What I stores of one product for W."""

    product: DeferrableProduct
    weight: Tensor
    x: Tensor  # (rows, width)
    gradient: Tensor  # of y, (rows, out)


class DeferredGradients:
    """The deferred products of one micro-batch in one chunk of layers, from its I to its W."""

    def __init__(self) -> None:
        self.products: deque[DeferredProduct] = deque()

    def accumulate(self) -> None:
        """W: accumulate the weight gradients of all products, and drop them. A weight may be a view of a parameter."""
        while self.products:
            product, weight, x, gradient = self.products.popleft()
            torch.autograd.backward(weight, product.weight_gradient(gradient, x))


_store: ContextVar[DeferredGradients | None] = ContextVar("store", default=None)


@contextmanager
def deferring_weight_gradients(store: DeferredGradients | None) -> Iterator[None]:
    """Products of forwards in the block defer their weight gradients to `store`; with None backward is in one pass."""
    token = _store.set(store)
    try:
        yield
    finally:
        _store.reset(token)


def deferrable_multiply(x: Tensor, weight: Tensor, product: DeferrableProduct = MATRIX_PRODUCT) -> Tensor:
    """The product y `(rows, out)` of x `(rows, width)` and a weight, whose gradient may be deferred to a store."""
    store = _store.get()
    if store is None or not torch.is_grad_enabled():
        return product.forward(x, weight)
    y: Tensor = _InputGradientOnly.apply(x, weight, product, store)  # type: ignore[no-untyped-call]
    return y


def deferrable_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The sum x W^T + b `(tokens, out)` of x `(tokens, width)`, W `(out, width)` and b `(out)`.

    The bias gradient is never deferred.
    """
    if _store.get() is None:
        return F.linear(x, weight, bias)
    y = deferrable_multiply(x, weight)
    return y if bias is None else y + bias


class _InputGradientOnly(torch.autograd.Function):
    """A product whose backward leaves out the gradient of the weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, product: DeferrableProduct, store: DeferredGradients) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.product, ctx.store = product, store
        return product.forward(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight = ctx.saved_tensors
        ctx.store.products.append(DeferredProduct(ctx.product, weight, x.detach(), gradient))
        return ctx.product.input_gradient(gradient, weight) if ctx.needs_input_grad[0] else None, None, None, None
