"""A module under FSDP2, one unit per layer and one for the rest, without its communication.

The rest of FSDP2's work (hooks, copies into and out of buffers, casts) is the overhead that it adds to a pass; its
collectives are measured by themselves.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from planner.models import Batch, build
from planner.models.layers import NetworkLayer, PositionEncoding
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype, Recompute

COMPUTE_DTYPES: dict[Dtype, torch.dtype] = {"bf16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
STORED_DTYPES: dict[Dtype, torch.dtype] = {
    **COMPUTE_DTYPES,
    "bf16": torch.float32,
}  # dtype of weights and optimizer state
WEIGHT_STD = 0.02  # standard deviation of random weights in place of gathered ones


class LayerStack(nn.Module):
    """Layers, one after the other: the first of a module; of one with windows also one with full attention."""

    def __init__(self, spec: Module, depth: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layers = build(spec.short_stack(depth), dtype=dtype, device=device).layers

    def set_recompute(self, how: Recompute) -> None:
        """Sets what the backwards of later forwards recompute."""
        for layer in self.layers.values():
            assert isinstance(layer, NetworkLayer)
            layer.recompute = how

    def forward(self, x: Tensor, places: PositionEncoding | None, batch: Batch) -> Tensor:
        for layer in self.layers.values():
            x = layer(x, places, batch)
        return x


def shard_without_communication(
    model: nn.Module, layers: Iterable[nn.Module], dtype: Dtype, device: torch.device
) -> list[Any]:
    """Shards the layers and the rest of a model on the meta device over all ranks, and disables communication.

    Returns the FSDP2 units, the rest last, which stays gathered from forward to backward.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    policy = mixed if dtype == "bf16" else MixedPrecisionPolicy(cast_forward_inputs=False)
    units = [fully_shard(unit, mesh=mesh, mp_policy=policy) for unit in [*layers, model]]
    for unit in units:
        replace_collectives(unit)
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.normal_(local_shard(parameter), std=WEIGHT_STD)
    return units


def set_gathered(units: Sequence[Any], kept: bool) -> None:
    """Sets whether units stay gathered, with unsharded gradients (`kept`), or each pass gathers and reduces."""
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


def local_shard(parameter: nn.Parameter) -> Tensor:
    """This rank's shard of a parameter."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def can_replace_collectives() -> bool:
    """Whether this torch allows to replace FSDP2's collectives."""
    return hasattr(FSDPModule, "set_custom_all_gather") and hasattr(FSDPModule, "set_custom_reduce_scatter")


def replace_collectives(unit: Any) -> None:
    """Replaces a unit's collectives by ones that send nothing."""
    unit.set_custom_all_gather(EmptyAllGather())
    unit.set_custom_reduce_scatter(EmptyReduceScatter())
    if hasattr(unit, "set_force_sum_reduction_for_comms"):  # as in the runtime: gradients are sums
        unit.set_force_sum_reduction_for_comms(True)
        unit.set_gradient_divide_factor(1.0)


class EmptyAllGather:
    """An all-gather that sends nothing, into a buffer of random weights."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], Tensor] = {}

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        shape = tuple(size)
        if shape not in self.buffers:
            self.buffers[shape] = torch.empty(shape, dtype=dtype, device=device).normal_(0.0, WEIGHT_STD)
        return self.buffers[shape]

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        """Does nothing."""


class EmptyReduceScatter:
    """A reduce-scatter that sends nothing, with zero sums."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        output_tensor.zero_()
