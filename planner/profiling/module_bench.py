"""A module under measurement on one rank: a short stack of its layers, its ends, and its optimizer."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from planner.models.batch import Batch
from planner.models.build import build, init_weights
from planner.models.data import packed_batch
from planner.models.network import Network
from planner.models.rotary import Rotary
from planner.profiling.activations import kept_bytes
from planner.profiling.grid import DEPTH
from planner.profiling.piece import Piece, Span
from planner.profiling.timing import span
from planner.specs.base import changed
from planner.specs.job import Dtype
from planner.specs.model import Module

DTYPES: dict[Dtype, torch.dtype] = {"bf16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
MASTER: dict[Dtype, torch.dtype] = {**DTYPES, "bf16": torch.float32}  # what the optimizer works on


class ModuleBench:
    """Runs the pieces of one module. Every rank runs the same one at the same time."""

    def __init__(self, spec: Module, dtype: Dtype, device: torch.device) -> None:
        self.spec, self.dtype, self.device = changed(spec, layers=DEPTH), dtype, device
        self.model = build(self.spec, dtype=DTYPES[dtype], device=device)
        init_weights(self.model, 0)
        self.layers = list(self.model.layers.parameters())
        self.ends = [p for name, p in self.model.named_parameters() if not name.startswith("layers.")]
        self.batches: dict[tuple[int, ...], Batch] = {}
        self.optimizer: torch.optim.Optimizer | None = None

    def run(self, piece: Piece) -> list[Span]:
        """The spans of one piece; for `kept`, the bytes per token of a layer and of the ends, as spans from 0."""
        if piece.kind == "update":
            return [self.update(piece.repeats)]
        batch = self.batch(piece.sizes)
        if piece.kind == "kept":
            return [Span(0.0, size / sum(piece.sizes)) for size in self.kept(batch)]
        return self.passes(piece.kind == "ends", batch, piece.repeats)

    def batch(self, lengths: tuple[int, ...]) -> Batch:
        if lengths not in self.batches:
            self.batches[lengths] = packed_batch(self.spec, list(enumerate(lengths)), 0, device=self.device)
        return self.batches[lengths]

    def passes(self, ends: bool, batch: Batch, repeats: int) -> list[Span]:
        """Forward as often as said, and then backward: one activation after the other is made before one is used."""
        x, rotary = self.inputs(batch)
        leaves = self.ends if ends else [x, *self.layers]
        outputs: list[Tensor] = []

        def forward() -> None:
            for _ in range(repeats):
                outputs.append(end_loss(self.model, batch) if ends else stack(self.model, x, rotary, batch))

        def backward() -> None:
            for _ in range(repeats):
                output = outputs.pop()
                torch.autograd.grad(output, leaves, torch.ones_like(output))

        return [span(forward, self.device, True), span(backward, self.device, True)]

    def inputs(self, batch: Batch) -> tuple[Tensor, Rotary | None]:
        """A stand-in for what the first layer is given."""
        generator = torch.Generator(self.device).manual_seed(0)
        shape = len(batch.positions), self.spec.hidden
        x = torch.randn(shape, generator=generator, dtype=DTYPES[self.dtype], device=self.device)
        return x.requires_grad_(), self.model.rotary(x, batch)

    def kept(self, batch: Batch) -> tuple[float, float]:
        """Bytes that one layer, and that the ends, keep for their backward."""
        x, rotary = self.inputs(batch)
        table = rotary or ()
        known = [*self.model.parameters(), *table]
        layers = kept_bytes(lambda: stack(self.model, x, rotary, batch), known)
        ends = kept_bytes(lambda: end_loss(self.model, batch), known)
        return layers / DEPTH, float(ends + sum(part.nbytes for part in table))

    def update(self, repeats: int) -> Span:
        """Steps of the optimizer over this rank's shards."""
        if self.optimizer is None:
            self.optimizer = sharded_optimizer(self.spec, self.dtype, self.device)
            self.optimizer.step()  # makes its moments
        step = self.optimizer.step
        return span(lambda: [step() for _ in range(repeats)], self.device, True)


def stack(model: Network, x: Tensor, rotary: Rotary | None, batch: Batch) -> Tensor:
    for layer in model.layers:
        x = layer(x, rotary, batch)
    return x


def end_loss(model: Network, batch: Batch) -> Tensor:
    """Everything but the layers."""
    x = model.start(batch)
    model.rotary(x, batch)
    return model.finish(x, batch)


def sharded_optimizer(spec: Module, dtype: Dtype, device: torch.device) -> torch.optim.Optimizer:
    """AdamW over the model sharded by all ranks, every gradient there."""
    model = build(spec, dtype=MASTER[dtype], device=torch.device("meta"))
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for unit in [*model.layers, model]:
        fully_shard(unit, mesh=mesh)
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.AdamW(model.parameters())
