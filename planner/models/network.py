"""What every model of the zoo is: a start, layers, and an end; a rank may hold only some of them."""

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
    """Layers are named by their number in the whole module, so parameters are called alike on every rank.

    Every layer, and then the whole, can be wrapped by `fully_shard`.
    """

    feeds = False  # whether another module reads its outputs, in place of a loss

    def __init__(self, spec: Module, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__()
        self.spec, self.held = spec, held
        mine = [layer for layer in range(spec.layers) if held.holds(layer)]
        self.first, self.last = held.holds(0), held.holds(spec.layers - 1)
        buckets = spec.relative_buckets if self.first else 0
        self.relative = nn.Embedding(buckets, spec.heads, dtype=dtype) if buckets else None
        self.layers = nn.ModuleDict({str(layer): Layer(spec, layer, dtype, held) for layer in mine})

    @abstractmethod
    def start(self, batch: Batch) -> Tensor:
        """The input of the first layer, [t, hidden]."""

    @abstractmethod
    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        """From the output of the last layer to the summed loss, or to what another module reads."""

    def places(self, x: Tensor, batch: Batch) -> Places | None:
        """What every layer needs to know about positions."""
        return places_of(self.spec, batch, None if self.relative is None else self.relative.weight, x.dtype)

    def forward(self, batch: Batch, x: Tensor | None = None, layers: Layers | None = None) -> Tensor:
        """From the input of `layers` (None: of all that are held), which the first layer makes itself, to their output,
        which the last layer turns into the loss summed over this rank's own tokens. With no tokens the loss is zero,
        and so are all gradients.
        """
        if x is None:
            x = self.start(batch)
        places = self.places(x, batch)
        numbers: Iterable[str] = self.layers if layers is None else map(str, layers)
        x = through([self.layers[number] for number in numbers], x, tensors(places), places, batch)
        ends = self.last and (layers is None or layers[-1] == self.spec.layers - 1)
        return self.finish(x, batch) if ends else x
