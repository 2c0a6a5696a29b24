"""What all networks have in common: an embedding, layers, and a head; a rank may hold only some of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.held import WHOLE_MODULE, Held
from planner.models.layer import Layer
from planner.models.offload import through
from planner.models.places import Places, places_of, tensors
from planner.specs.base import Layers
from planner.specs.layers import Module


class Network(nn.Module, ABC):
    """A network over a packed batch. Layers are named by their number in the whole module, so parameters have the same
    names on every rank.

    Every layer, and then the whole network, can be wrapped by `fully_shard`.
    """

    feeds = False  # whether another module reads its outputs, so that there is no loss

    def __init__(self, spec: Module, dtype: torch.dtype, shard: Held = WHOLE_MODULE) -> None:
        super().__init__()
        self.spec, self.held = spec, shard
        held_layers = [layer for layer in range(spec.layers) if shard.holds(layer)]
        self.first, self.last = shard.holds(0), shard.holds(spec.layers - 1)
        buckets = spec.relative_buckets if self.first else 0
        self.relative = nn.Embedding(buckets, spec.heads, dtype=dtype) if buckets else None
        self.layers = nn.ModuleDict({str(layer): Layer(spec, layer, dtype, shard) for layer in held_layers})

    @abstractmethod
    def start(self, batch: Batch) -> Tensor:
        """The input of the first layer, `(local_tokens, hidden)`."""

    @abstractmethod
    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        """From the output of the last layer x `(local_tokens, hidden)` to the summed loss (scalar), or to what another
        module reads.
        """

    def places(self, x: Tensor, batch: Batch) -> Places | None:
        """The position encoding of this batch for all layers. x `(local_tokens, hidden)` gives the device and dtype."""
        return places_of(self.spec, batch, None if self.relative is None else self.relative.weight, x.dtype)

    def forward(self, batch: Batch, x: Tensor | None = None, layers: Layers | None = None) -> Tensor:
        """From the input x `(local_tokens, hidden)` of `layers` (None: all that are held) to their output, of the same
        shape.

        The first layer's input is made here where x is None. The last layer's output becomes the loss (scalar), summed
        over this rank's own tokens, or what another module reads. Without tokens the loss and all gradients are zero.
        """
        if x is None:
            x = self.start(batch)
        encoding = self.places(x, batch)
        numbers: Iterable[str] = self.layers if layers is None else map(str, layers)
        x = through([self.layers[number] for number in numbers], x, tensors(encoding), encoding, batch)
        has_head = self.last and (layers is None or layers[-1] == self.spec.layers - 1)
        return self.finish(x, batch) if has_head else x
