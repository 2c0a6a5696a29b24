"""What every model of the zoo is: a start, equal layers, and an end that gives a loss."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.layer import Layer
from planner.models.rotary import Rotary, rotary_table
from planner.specs.model import Module, head_dim


class Network(nn.Module, ABC):
    """`model(batch)` is the loss summed over this rank's own tokens; with none it is zero, and so are all gradients.

    Every layer, and then the whole, can be wrapped by `fully_shard`.
    """

    def __init__(self, spec: Module, dtype: torch.dtype, *, recompute: bool = False) -> None:
        super().__init__()
        self.spec = spec
        self.layers = nn.ModuleList(Layer(spec, dtype, recompute=recompute) for _ in range(spec.layers))

    @abstractmethod
    def start(self, batch: Batch) -> Tensor:
        """The input of the first layer, [t, hidden]."""

    @abstractmethod
    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        """From the output of the last layer to the summed loss."""

    def rotary(self, x: Tensor, batch: Batch) -> Rotary | None:
        """What every layer needs to know about positions."""
        if self.spec.positions != "rope":
            return None
        return rotary_table(batch.positions, head_dim(self.spec), x.dtype)

    def forward(self, batch: Batch) -> Tensor:
        x = self.start(batch)
        rotary = self.rotary(x, batch)
        for layer in self.layers:
            x = layer(x, rotary, batch)
        return self.finish(x, batch)
