"""Auxiliary losses of layers, such as load balancing: their gradients start where they are computed, on any pipeline
stage, and their values are collected until they are summed.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class AuxiliaryLosses:
    """The auxiliary losses of one batch in one chunk of layers, by number of the layer, so that one that is recomputed
    in backward counts once.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale  # weight of these losses, and of the targets', in the loss of the step
        self.losses: dict[int, Tensor] = {}

    def attach(self, x: Tensor, layer: int, loss: Tensor) -> Tensor:
        """Return x (any shape) unchanged; in backward the gradient of the scaled scalar `loss` starts here."""
        self.losses[layer] = loss.detach()
        out: Tensor = _AttachLoss.apply(x, loss, self.scale)  # type: ignore[no-untyped-call]
        return out

    def total(self, layers: Iterable[int]) -> float | Tensor:
        """The scaled sum (scalar) of the losses of these layers."""
        return self.scale * sum(self.losses[layer] for layer in layers if layer in self.losses)


class _AttachLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, scale: float) -> Tensor:
        ctx.start = torch.full_like(loss, scale)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, ctx.start, None
