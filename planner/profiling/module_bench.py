"""Measures a module on one rank: a short stack of its layers, embedding and head, and the optimizer."""

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
    """Runs measurements of one module. Every rank runs the same one at the same time."""

    def __init__(self, spec: Module, dtype: Dtype, device: torch.device) -> None:
        self.full_spec, self.dtype, self.device = spec, dtype, device
        self.spec = changed(spec, layers=0)  # embedding and head: from a batch to its loss without layers
        self.stack = Stack(spec, DEPTH, COMPUTED[dtype], device)
        self.embedding_head = build(self.spec, dtype=COMPUTED[dtype], device=device)
        for model in (self.stack, self.embedding_head):
            init_weights(model, 0)
        self.sharded: dict[
            bool, tuple[nn.Module, list[Any]]
        ] = {}  # embedding and head, or layers → model and FSDP2 units
        self.batches: dict[tuple[int, ...], Batch] = {}
        self.parameters: list[nn.Parameter] = []  # that the optimizer updates
        self.optimizer: torch.optim.Optimizer | None = None

    def run(self, measurement: Piece) -> list[Span]:
        """Spans of one measurement over all its repeats; for `kept` bytes per token, for `update` seconds per
        parameter.
        """
        if measurement.kind == "update":
            return [self.update(measurement.repeats)]
        batch = self.batch(measurement.sizes)
        if measurement.kind == "kept":
            layer, embedding_head, recomputed = module_kept(self.spec, batch, COMPUTED[self.dtype], self.device)
            return [Span(0.0, size / sum(measurement.sizes)) for size in (layer, embedding_head, *recomputed)]
        ends = measurement.kind.endswith("ends")
        if measurement.kind in SPREAD:
            return self.passes(
                self.under_fsdp(ends, measurement.kind.startswith("held")), ends, batch, measurement.repeats
            )
        self.stack.make_again(measurement.kind if measurement.kind in AGAIN else "none")
        return self.passes(self.embedding_head if ends else self.stack, ends, batch, measurement.repeats)

    def under_fsdp(self, ends: bool, kept: bool) -> nn.Module:
        """The same layers, or embedding and head, sharded over all ranks by FSDP2; unsharded where this torch cannot
        replace its collectives.
        """
        if not can_silence():
            return self.embedding_head if ends else self.stack
        if ends not in self.sharded:
            stored = STORED[self.dtype]
            stack, rest = Stack(self.full_spec, DEPTH, stored, META), build(self.spec, dtype=stored, device=META)
            layers = () if ends else stack.layers.values()
            model: nn.Module = rest if ends else stack
            self.sharded[ends] = model, sharded(model, layers, self.dtype, self.device)
        model, units = self.sharded[ends]
        gather(units, kept)
        return model

    def batch(self, lengths: tuple[int, ...]) -> Batch:
        if lengths not in self.batches:
            self.batches[lengths] = packed_batch(self.spec, list(enumerate(lengths)), 0, device=self.device)
        return self.batches[lengths]

    def passes(self, model: nn.Module, ends: bool, batch: Batch, repeats: int) -> list[Span]:
        """Forwards and backwards in turn, as for micro-batches."""
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
        """Random inputs of the first layer, (tokens, hidden), and their positions."""
        generator = torch.Generator(self.device).manual_seed(0)
        shape = len(batch.positions), self.spec.hidden
        x = torch.randn(shape, generator=generator, dtype=COMPUTED[self.dtype], device=self.device)
        return x.requires_grad_(), self.embedding_head.places(x, batch)

    def update(self, repeats: int) -> Span:
        """Seconds per parameter of an AdamW step on this rank's shards of layers, embedding and head."""
        if self.optimizer is None:
            self.parameters = [p for ends in (False, True) for p in self.under_fsdp(ends, kept=False).parameters()]
            self.optimizer = torch.optim.AdamW(self.parameters)
            self.set_gradients()
            self.optimizer.step()  # creates the moments
        self.set_gradients()
        (span,) = in_turns([self.optimizer.step], repeats, self.device)
        for parameter in self.parameters:
            parameter.grad = None
        parameters = sum(local(parameter).numel() for parameter in self.parameters)
        return Span(0.0, (span.end - span.begin) / parameters, None if span.busy is None else span.busy / parameters)

    def set_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.ones_like(parameter)
