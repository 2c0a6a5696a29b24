"""A module under measurement on one rank: a short stack of its layers, its ends, and its optimizer."""

import torch
from torch import Tensor

from planner.models.batch import Batch
from planner.models.build import build, init_weights
from planner.models.data import packed_batch
from planner.models.rotary import Rotary
from planner.profiling.activations import module_kept
from planner.profiling.grid import DEPTH
from planner.profiling.piece import Piece, Span
from planner.profiling.sharded import COMPUTED, STORED, Stack, can_silence, local, sharded
from planner.profiling.timing import in_turns
from planner.specs.base import changed
from planner.specs.job import Dtype
from planner.specs.model import Module

META = torch.device("meta")


class ModuleBench:
    """Runs the pieces of one module. Every rank runs the same one at the same time."""

    def __init__(self, spec: Module, dtype: Dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.spec = changed(spec, layers=0)  # for the ends: from a batch to its loss without a layer
        stored, place = (STORED[dtype], META) if can_silence() else (COMPUTED[dtype], device)
        self.stack, self.ends = Stack(spec, DEPTH, stored, place), build(self.spec, dtype=stored, device=place)
        for model, units in ((self.stack, self.stack.layers.values()), (self.ends, ())):
            if can_silence():
                sharded(model, units, dtype, device)
            else:
                init_weights(model, 0)
        self.batches: dict[tuple[int, ...], Batch] = {}
        self.parameters = [*self.stack.parameters(), *self.ends.parameters()]
        self.optimizer: torch.optim.Optimizer | None = None

    def run(self, piece: Piece) -> list[Span]:
        """What one piece took in all its repeats; for `kept` bytes, for `update` seconds per parameter held here."""
        if piece.kind == "update":
            return [self.update(piece.repeats)]
        batch = self.batch(piece.sizes)
        if piece.kind == "kept":
            kept = module_kept(self.spec, batch, COMPUTED[self.dtype], self.device)
            return [Span(0.0, size / sum(piece.sizes)) for size in kept]
        return self.passes(piece.kind == "ends", batch, piece.repeats)

    def batch(self, lengths: tuple[int, ...]) -> Batch:
        if lengths not in self.batches:
            self.batches[lengths] = packed_batch(self.spec, list(enumerate(lengths)), 0, device=self.device)
        return self.batches[lengths]

    def passes(self, ends: bool, batch: Batch, repeats: int) -> list[Span]:
        """Forward and backward in turns, as micro-batches come."""
        x, rotary = self.inputs(batch)
        ones = torch.ones((), device=self.device) if ends else torch.ones_like(x)
        output = ones

        def forward() -> None:
            nonlocal output
            output = self.ends(batch) if ends else self.stack(x, rotary, batch)

        def backward() -> None:
            output.backward(ones.to(output.dtype))  # type: ignore[no-untyped-call]

        spans = in_turns([forward, backward], repeats, self.device)
        (self.ends if ends else self.stack).zero_grad()
        return spans

    def inputs(self, batch: Batch) -> tuple[Tensor, Rotary | None]:
        """A stand-in for what the first layer is given."""
        generator = torch.Generator(self.device).manual_seed(0)
        shape = len(batch.positions), self.spec.hidden
        x = torch.randn(shape, generator=generator, dtype=COMPUTED[self.dtype], device=self.device)
        return x.requires_grad_(), self.ends.rotary(x, batch)

    def update(self, repeats: int) -> Span:
        """Steps of AdamW, seconds per parameter."""
        for parameter in self.parameters:
            parameter.grad = torch.ones_like(parameter)
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(self.parameters)
            self.optimizer.step()  # makes its moments
        (span,) = in_turns([self.optimizer.step], repeats, self.device)
        for parameter in self.parameters:
            parameter.grad = None
        held = sum(local(parameter).numel() for parameter in self.parameters)
        return Span(0.0, span.end / held, None if span.busy is None else span.busy / held)
