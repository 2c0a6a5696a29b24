"""What all networks have in common: an embedding, layers, and a head; a rank may hold only some of them. And what
encoders have in common: they return vectors for another module, or the squared error to target vectors.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.autograd.activation_offload import run_layers
from planner.models.batch import Batch
from planner.models.layers.layer import NetworkLayer
from planner.models.layers.position_encoding import PositionEncoding, encoding_tensors, position_encoding
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.base import Layers
from planner.specs.layers import Module


class Network(nn.Module, ABC):
    """A network over a packed batch. Layers are named by their number in the whole module, so parameters have the same
    names on every rank.

    Every layer, and then the whole network, can be wrapped by `fully_shard`.
    """

    feeds_module = False  # whether another module, or a task's loss, reads its outputs: it has no loss of its own
    passes_gradients_on = False  # whether a module that it reads is trained, so that it has a backward though frozen

    def __init__(self, spec: Module, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__()
        self.spec, self.shard = spec, shard
        held_layers = [layer for layer in range(spec.layers) if shard.holds(layer)]
        self.has_first_layer, self.has_last_layer = shard.holds(0), shard.holds(spec.layers - 1)
        buckets = spec.relative_buckets if self.has_first_layer else 0
        self.relative = nn.Embedding(buckets, spec.heads, dtype=dtype) if buckets else None
        self.layers = nn.ModuleDict({str(layer): NetworkLayer(spec, layer, dtype, shard) for layer in held_layers})

    @abstractmethod
    def embed(self, batch: Batch) -> Tensor:
        """The input of the first layer, `(local_tokens, hidden)`."""

    @abstractmethod
    def output(self, x: Tensor, batch: Batch) -> Tensor:
        """Map the last layer's x `(local_tokens, hidden)` to the loss (scalar), or to what another module reads."""

    def pauses(self, batch: Batch) -> Collection[int]:
        """Layers behind which something is done with their output."""
        return ()

    def after_layer(self, layer: int, x: Tensor, batch: Batch) -> Tensor:
        """What goes on from the output x `(local_tokens, hidden)` of such a layer."""
        return x

    def position_encoding(self, x: Tensor, batch: Batch) -> PositionEncoding | None:
        """The position encoding of this batch for all layers. x `(local_tokens, hidden)` gives the device and dtype."""
        return position_encoding(self.spec, batch, None if self.relative is None else self.relative.weight, x.dtype)

    def forward(self, batch: Batch, x: Tensor | None = None, layers: Layers | None = None) -> Tensor:
        """Map the input x `(local_tokens, hidden)` of `layers` (None: all that are held) to their output, of the same
        shape.

        The first layer's input is made here where x is None. The last layer's output becomes the loss (scalar), summed
        over this rank's own tokens, or what another module reads. Without tokens the loss and all gradients are zero.
        """
        if x is None:
            x = self.embed(batch)
            if self.passes_gradients_on and torch.is_grad_enabled() and not x.requires_grad:
                x.requires_grad_()  # a micro-batch without features has the backward of all others
        encoding = self.position_encoding(x, batch)
        for run in cut_behind([*map(int, self.layers)] if layers is None else layers, self.pauses(batch)):
            blocks = [self.layers[str(layer)] for layer in run]
            x = run_layers(blocks, x, encoding_tensors(encoding), encoding, batch)
            x = self.after_layer(run[-1], x, batch) if run[-1] in self.pauses(batch) else x
        has_head = self.has_last_layer and (layers is None or layers[-1] == self.spec.layers - 1)
        return self.output(x, batch) if has_head else x


def cut_behind(layers: Iterable[int], pauses: Collection[int]) -> Iterator[list[int]]:
    """Runs of these layers, each of which ends at a pause, or with the last."""
    run: list[int] = []
    for layer in layers:
        run.append(layer)
        if layer in pauses:
            yield run
            run = []
    if run:
        yield run


class EncoderNetwork(Network):
    """A network that returns vectors, or their squared error."""

    @abstractmethod
    def output_tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Map the last layer's x `(local_tokens, hidden)` to outputs `(local_tokens / merged_tokens, out)`."""

    def output(self, x: Tensor, batch: Batch) -> Tensor:
        """The vectors `(local_tokens / merged_tokens, out)` where another module reads them; else the loss (scalar)."""
        tokens = self.output_tokens(x, batch)
        if self.feeds_module:
            return tokens
        return summed_squared_error(tokens, batch)


def summed_squared_error(tokens: Tensor, batch: Batch) -> Tensor:
    """The squared error (scalar) of vectors `(local output tokens, out)`, summed by weight in float32 or better."""
    targets = batch.tensor_parallel.local_rows(batch.targets)
    wide = torch.promote_types(tokens.dtype, torch.float32)
    return batch.weighted_sum(F.mse_loss(tokens.to(wide), targets.to(wide), reduction="none").sum(1))
