"""Losses beside that of the targets: their gradients enter where they are computed, on any stage of a pipeline, and
their values are kept until somebody adds them up.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Auxiliary:
    """Of one batch, on its way through a chunk of layers. A layer's loss is kept under its number, so one that is
    computed again in backward is counted once.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale  # of these losses, as of the targets', in that of the step
        self.losses: dict[int, Tensor] = {}

    def attach(self, x: Tensor, layer: int, loss: Tensor) -> Tensor:
        """x as it is. When its gradient comes back, that of the scaled loss starts from here."""
        self.losses[layer] = loss.detach()
        out: Tensor = _Attach.apply(x, loss, self.scale)  # type: ignore[no-untyped-call]
        return out

    def total(self, layers: Iterable[int]) -> float | Tensor:
        """Of these layers, scaled."""
        return self.scale * sum(self.losses[layer] for layer in layers if layer in self.losses)


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, scale: float) -> Tensor:
        ctx.start = torch.full_like(loss, scale)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, ctx.start, None
