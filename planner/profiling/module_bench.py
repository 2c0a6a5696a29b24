"""A module under measurement on one rank: a short stack of its layers, its ends, and its optimizer."""

from typing import Any

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.build import build, init_weights
from planner.models.data import packed_batch
from planner.models.places import Places
from planner.profiling.activations import module_kept
from planner.profiling.grid import DEPTH
from planner.profiling.piece import AGAIN, SPREAD, Piece, Span
from planner.profiling.sharded import COMPUTED, STORED, Stack, can_silence, gather, local, sharded
from planner.profiling.timing import in_turns
from planner.specs.base import changed
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

META = torch.device("meta")


class ModuleBench:
    """Runs the pieces of one module. Every rank runs the same one at the same time."""

    def __init__(self, spec: Module, dtype: Dtype, device: torch.device) -> None:
        self.whole, self.dtype, self.device = spec, dtype, device
        self.spec = changed(spec, layers=0)  # for the ends: from a batch to its loss without a layer
        self.stack = Stack(spec, DEPTH, COMPUTED[dtype], device)
        self.ends = build(self.spec, dtype=COMPUTED[dtype], device=device)
        for model in (self.stack, self.ends):
            init_weights(model, 0)
        self.spread: dict[bool, tuple[nn.Module, list[Any]]] = {}  # are they the ends → a model and its units
        self.batches: dict[tuple[int, ...], Batch] = {}
        self.parameters: list[nn.Parameter] = []  # that the optimizer works on
        self.optimizer: torch.optim.Optimizer | None = None

    def run(self, piece: Piece) -> list[Span]:
        """What one piece took in all its repeats; for `kept` bytes, for `update` seconds per parameter held here."""
        if piece.kind == "update":
            return [self.update(piece.repeats)]
        batch = self.batch(piece.sizes)
        if piece.kind == "kept":
            layer, ends, again = module_kept(self.spec, batch, COMPUTED[self.dtype], self.device)
            return [Span(0.0, size / sum(piece.sizes)) for size in (layer, ends, *again)]
        ends = piece.kind.endswith("ends")
        if piece.kind in SPREAD:
            return self.passes(self.under_fsdp(ends, piece.kind.startswith("held")), ends, batch, piece.repeats)
        self.stack.make_again(piece.kind if piece.kind in AGAIN else "none")
        return self.passes(self.ends if ends else self.stack, ends, batch, piece.repeats)

    def under_fsdp(self, ends: bool, kept: bool) -> nn.Module:
        """The same layers, or ends, with their states spread over all ranks; as they are where this torch cannot be
        silenced.
        """
        if not can_silence():
            return self.ends if ends else self.stack
        if ends not in self.spread:
            stored = STORED[self.dtype]
            stack, rest = Stack(self.whole, DEPTH, stored, META), build(self.spec, dtype=stored, device=META)
            layers = () if ends else stack.layers.values()
            made: nn.Module = rest if ends else stack
            self.spread[ends] = made, sharded(made, layers, self.dtype, self.device)
        model, units = self.spread[ends]
        gather(units, kept)
        return model

    def batch(self, lengths: tuple[int, ...]) -> Batch:
        if lengths not in self.batches:
            self.batches[lengths] = packed_batch(self.spec, list(enumerate(lengths)), 0, device=self.device)
        return self.batches[lengths]

    def passes(self, model: nn.Module, ends: bool, batch: Batch, repeats: int) -> list[Span]:
        """Forward and backward in turns, as micro-batches come."""
        x, places = self.inputs(batch)
        ones = torch.ones((), device=self.device) if ends else torch.ones_like(x)
        output = ones

        def forward() -> None:
            nonlocal output
            output = model(batch) if ends else model(x, places, batch)

        def backward() -> None:
            output.backward(ones.to(output.dtype))  # type: ignore[no-untyped-call]

        spans = in_turns([forward, backward], repeats, self.device)
        model.zero_grad()
        return spans

    def inputs(self, batch: Batch) -> tuple[Tensor, Places | None]:
        """A stand-in for what the first layer is given."""
        generator = torch.Generator(self.device).manual_seed(0)
        shape = len(batch.positions), self.spec.hidden
        x = torch.randn(shape, generator=generator, dtype=COMPUTED[self.dtype], device=self.device)
        return x.requires_grad_(), self.ends.places(x, batch)

    def update(self, repeats: int) -> Span:
        """Steps of AdamW on this rank's parts of layers and ends, seconds per parameter."""
        if self.optimizer is None:
            self.parameters = [p for ends in (False, True) for p in self.under_fsdp(ends, kept=False).parameters()]
            self.optimizer = torch.optim.AdamW(self.parameters)
            self.give_gradients()
            self.optimizer.step()  # makes its moments
        self.give_gradients()
        (span,) = in_turns([self.optimizer.step], repeats, self.device)
        for parameter in self.parameters:
            parameter.grad = None
        held = sum(local(parameter).numel() for parameter in self.parameters)
        return Span(0.0, (span.end - span.begin) / held, None if span.busy is None else span.busy / held)

    def give_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.ones_like(parameter)
