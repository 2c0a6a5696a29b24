"""Measures a module on one rank: a short stack of its layers, embedding and head, and the optimizer.

Activation memory is the bytes of the distinct storages that autograd saves from forward to backward, without
parameters. Recomputed activations are not saved, so saved tensors are counted outside of the layer's own hooks
(models/autograd/saved_tensors.py): torch's hooks would not see what the hooks of a recomputing layer replace.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from planner.models import Batch, ShardedAdamW, build, init_weights
from planner.models.autograd import packing_saved_tensors
from planner.models.inputs import synthetic_batch
from planner.models.layers import PositionEncoding, encoding_tensors
from planner.profiling.device_timing import time_in_turns
from planner.profiling.fsdp_without_communication import (
    COMPUTE_DTYPES,
    STORED_DTYPES,
    LayerStack,
    can_replace_collectives,
    local_shard,
    set_gathered,
    shard_without_communication,
)
from planner.profiling.measurement import FSDP_KINDS, RECOMPUTE_KINDS, Measurement, TimeSpan
from planner.profiling.measurement_grid import STACK_LAYERS
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype, Recompute

META = torch.device("meta")


class SavedBytes(NamedTuple):
    """Saved bytes of a batch: of one layer, of embedding and head, and of one layer under each recompute mode."""

    layer: float
    embedding_head: float
    recomputing: tuple[float, ...]


def module_activation_bytes(spec: Module, batch: Batch, dtype: torch.dtype, device: torch.device) -> SavedBytes:
    """Bytes that layers, and embedding and head, save for their backward."""
    stack = LayerStack(spec, STACK_LAYERS, dtype, device)
    embedding_head = build(with_fields(spec, layers=0), dtype=dtype, device=device)
    for model in (stack, embedding_head):
        init_weights(model, 0)
    x = torch.randn(len(batch.positions), spec.hidden, dtype=dtype, device=device, requires_grad=True)
    places = embedding_head.position_encoding(x, batch)
    table = encoding_tensors(places)  # shared by all layers

    def layer(how: Recompute) -> float:
        stack.set_recompute(how)
        return saved_bytes(lambda: stack(x, places, batch), [*stack.parameters(), *table]) / STACK_LAYERS

    outside = saved_bytes(lambda: embedding_head(batch), embedding_head.parameters())
    return SavedBytes(
        layer("none"), outside + sum(part.nbytes for part in table), tuple(layer(how) for how in RECOMPUTE_KINDS)
    )


def saved_bytes(call: Callable[[], Tensor], known: Iterable[Tensor]) -> int:
    """Bytes saved for the backward of `call`, without storages of the `known` tensors."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in known}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            saved[storage.data_ptr()] = storage.nbytes()

    with torch.enable_grad(), packing_saved_tensors(count):
        result = call()
    del result  # kept until here, so that no storage was freed and allocated again
    return sum(saved.values())


class ModuleBench:
    """Runs measurements of one module. Every rank runs the same one at the same time."""

    def __init__(self, spec: Module, dtype: Dtype, device: torch.device) -> None:
        self.full_spec, self.dtype, self.device = spec, dtype, device
        self.spec = with_fields(spec, layers=0)  # embedding and head: from a batch to its loss without layers
        self.stack = LayerStack(spec, STACK_LAYERS, COMPUTE_DTYPES[dtype], device)
        self.embedding_head = build(self.spec, dtype=COMPUTE_DTYPES[dtype], device=device)
        for model in (self.stack, self.embedding_head):
            init_weights(model, 0)
        self.sharded: dict[
            bool, tuple[nn.Module, list[Any]]
        ] = {}  # embedding and head, or layers → model and FSDP2 units
        self.batches: dict[tuple[int, ...], Batch] = {}
        self.parameters: list[nn.Parameter] = []  # that the optimizer updates
        self.optimizer: torch.optim.Optimizer | None = None

    def run(self, measurement: Measurement) -> list[TimeSpan]:
        """Spans of one measurement over all its repeats; for `kept` bytes per token, for `update` seconds per
        parameter.
        """
        if measurement.kind == "update":
            return [self.update(measurement.repeats)]
        batch = self.batch(measurement.sizes)
        if measurement.kind == "kept":
            layer, embedding_head, recomputed = module_activation_bytes(
                self.spec, batch, COMPUTE_DTYPES[self.dtype], self.device
            )
            return [TimeSpan(0.0, size / sum(measurement.sizes)) for size in (layer, embedding_head, *recomputed)]
        if measurement.kind == "frozen":
            return self.frozen_passes(batch, measurement.repeats)
        ends = measurement.kind.endswith("ends")
        if measurement.kind in FSDP_KINDS:
            return self.passes(
                self.under_fsdp(ends, measurement.kind.startswith("held")), ends, batch, measurement.repeats
            )
        self.stack.set_recompute(measurement.kind if measurement.kind in RECOMPUTE_KINDS else "none")
        return self.passes(self.embedding_head if ends else self.stack, ends, batch, measurement.repeats)

    def under_fsdp(self, ends: bool, kept: bool) -> nn.Module:
        """The measured layers, or embedding and head, sharded over all ranks by FSDP2; unsharded where this torch
        cannot replace its collectives.
        """
        if not can_replace_collectives():
            return self.embedding_head if ends else self.stack
        if ends not in self.sharded:
            stored = STORED_DTYPES[self.dtype]
            stack = LayerStack(self.full_spec, STACK_LAYERS, stored, META)
            rest = build(self.spec, dtype=stored, device=META)
            layers = () if ends else stack.layers.values()
            model: nn.Module = rest if ends else stack
            self.sharded[ends] = model, shard_without_communication(model, layers, self.dtype, self.device)
        model, units = self.sharded[ends]
        set_gathered(units, kept)
        return model

    def batch(self, lengths: tuple[int, ...]) -> Batch:
        if lengths not in self.batches:
            self.batches[lengths] = synthetic_batch(self.spec, list(enumerate(lengths)), 0, device=self.device)
        return self.batches[lengths]

    def passes(self, model: nn.Module, ends: bool, batch: Batch, repeats: int) -> list[TimeSpan]:
        """Forwards and backwards in turn, as for micro-batches."""
        x, places = self.inputs(batch)
        ones = torch.ones((), device=self.device) if ends else torch.ones_like(x)
        output = ones

        def forward() -> None:
            nonlocal output
            output = model(batch) if ends else model(x, places, batch)

        def backward() -> None:
            output.backward(ones.to(output.dtype))  # type: ignore[no-untyped-call]

        spans = time_in_turns([forward, backward], repeats, self.device)
        model.zero_grad()
        return spans

    def frozen_passes(self, batch: Batch, repeats: int) -> list[TimeSpan]:
        """Forwards that keep nothing, and backwards of inputs alone, of layers whose weights are frozen."""
        self.stack.set_recompute("none")
        self.stack.requires_grad_(False)
        x, places = self.inputs(batch)
        ones, output = torch.ones_like(x), x

        def forward_alone() -> None:
            with torch.no_grad():
                self.stack(x, places, batch)

        def forward() -> None:
            nonlocal output
            output = self.stack(x, places, batch)

        def backward() -> None:
            output.backward(ones)  # type: ignore[no-untyped-call]

        alone, _, back = time_in_turns([forward_alone, forward, backward], repeats, self.device)
        self.stack.requires_grad_(True)
        return [alone, back]

    def inputs(self, batch: Batch) -> tuple[Tensor, PositionEncoding | None]:
        """Random inputs of the first layer, (tokens, hidden), and their positions."""
        generator = torch.Generator(self.device).manual_seed(0)
        shape = len(batch.positions), self.spec.hidden
        x = torch.randn(shape, generator=generator, dtype=COMPUTE_DTYPES[self.dtype], device=self.device)
        return x.requires_grad_(), self.embedding_head.position_encoding(x, batch)

    def update(self, repeats: int) -> TimeSpan:
        """Seconds per parameter of an AdamW step on this rank's shards of layers, embedding and head."""
        if self.optimizer is None:
            self.parameters = [p for ends in (False, True) for p in self.under_fsdp(ends, kept=False).parameters()]
            self.optimizer = ShardedAdamW(self.parameters)
            self.set_gradients()
            self.optimizer.step()  # creates the moments
        self.set_gradients()
        (span,) = time_in_turns([self.optimizer.step], repeats, self.device)
        for parameter in self.parameters:
            parameter.grad = None
        parameters = sum(local_shard(parameter).numel() for parameter in self.parameters)
        return TimeSpan(
            0.0, (span.end - span.begin) / parameters, None if span.busy is None else span.busy / parameters
        )

    def set_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.ones_like(parameter)
