"""A module as FSDP2 runs it, one unit per layer and one for the rest, with its communication left out.

What FSDP2 does besides (hooks, copies into and out of buffers, casts) is what it adds to a pass; what it sends is
priced by the collectives.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from planner.models.batch import Batch
from planner.models.build import build
from planner.models.layer import Layer
from planner.models.places import Places
from planner.specs.base import changed
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype, Recompute

COMPUTED: dict[Dtype, torch.dtype] = {"bf16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
STORED: dict[Dtype, torch.dtype] = {**COMPUTED, "bf16": torch.float32}  # what the optimizer works on
WEIGHT = 0.02  # standard deviation of the weights that no collective brought


class Stack(nn.Module):
    """Layers, one after the other."""

    def __init__(self, spec: Module, depth: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layers = build(changed(spec, layers=depth), dtype=dtype, device=device).layers

    def make_again(self, how: Recompute) -> None:
        """In the backwards of forwards from now on."""
        for layer in self.layers.values():
            assert isinstance(layer, Layer)
            layer.recompute = how

    def forward(self, x: Tensor, places: Places | None, batch: Batch) -> Tensor:
        for layer in self.layers.values():
            x = layer(x, places, batch)
        return x


def sharded(model: nn.Module, layers: Iterable[nn.Module], dtype: Dtype, device: torch.device) -> list[Any]:
    """A model on the meta device, its layers and the rest of it sharded over all ranks, without communication.

    Returns the units, the rest last. As FSDP2 has it, that one stays gathered from forward to backward.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    half = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    policy = half if dtype == "bf16" else MixedPrecisionPolicy(cast_forward_inputs=False)
    units = [fully_shard(unit, mesh=mesh, mp_policy=policy) for unit in [*layers, model]]
    for unit in units:
        silence(unit)
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.normal_(local(parameter), std=WEIGHT)
    return units


def gather(units: Sequence[Any], kept: bool) -> None:
    """`kept`: the next passes find units gathered and leave whole gradients; else they gather and reduce each time."""
    *layers, _ = units
    for unit in layers:
        unit.set_reshard_after_forward(not kept, recurse=False)
    for unit in units:
        unit.set_reshard_after_backward(not kept, recurse=False)
        unit.set_requires_gradient_sync(not kept, recurse=False)
        if kept:
            unit.unshard()
        else:
            unit.reshard()


def local(parameter: nn.Parameter) -> Tensor:
    """This rank's part of a parameter."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def can_silence() -> bool:
    """Whether this torch lets others do FSDP2's communication."""
    return hasattr(FSDPModule, "set_custom_all_gather") and hasattr(FSDPModule, "set_custom_reduce_scatter")


def silence(unit: Any) -> None:
    unit.set_custom_all_gather(Gathered())
    unit.set_custom_reduce_scatter(Reduced())
    if hasattr(unit, "set_force_sum_reduction_for_comms"):  # as in a run: gradients are sums
        unit.set_force_sum_reduction_for_comms(True)
        unit.set_gradient_divide_factor(1.0)


class Gathered:
    """An all-gather into a buffer that holds weights already."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], Tensor] = {}

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        shape = tuple(size)
        if shape not in self.buffers:
            self.buffers[shape] = torch.empty(shape, dtype=dtype, device=device).normal_(0.0, WEIGHT)
        return self.buffers[shape]

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        """Nothing is sent."""


class Reduced:
    """A reduce-scatter whose sums are zero."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        output_tensor.zero_()
