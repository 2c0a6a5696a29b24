"""A model whose states are spread over all ranks by FSDP2, one unit per layer and one for the rest.

ZeRO-3: every unit is gathered before use in each pass, and its gradients are reduced after each backward. ZeRO-1 and 2:
units stay gathered through the step, gradients pile up on each rank, and one reduction ends the step. ZeRO-0: the same
with whole states on every rank. Gradients are sums over ranks; whoever computes a loss divides it by the tokens of all.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from planner.launch.collectives import ALL_GATHER, REDUCE_SCATTER
from planner.models.build import build, init_weights
from planner.models.network import Network
from planner.plan.model import Layout
from planner.runtime.clock import Clock
from planner.specs.job import Dtype
from planner.specs.model import Module

STORED = {"bf16": torch.float32, "float32": torch.float32, "float64": torch.float64}  # of weights and optimizer
META = torch.device("meta")


class Sharded:
    """The model, and when its ranks meet."""

    def __init__(self, spec: Module, layout: Layout, dtype: Dtype, seed: int, clock: Clock) -> None:
        self.clock, self.device, self.stored = clock, clock.device, STORED[dtype]
        self.model: Network = build(spec, dtype=self.stored, device=META, recompute=layout.recompute == "full")
        ranks = dist.get_world_size()
        self.once = layout.zero < 3 and ranks > 1  # gradients are reduced once a step
        names = ("replicate", "shard") if layout.zero == 0 else ("shard",)
        mesh = init_device_mesh(self.device.type, (ranks, 1)[: len(names)], mesh_dim_names=names)
        options: dict[str, Any] = {"mesh": mesh, "mp_policy": precision(dtype)}
        if self.once:
            options["reshard_after_forward"] = False
        self.units: list[FSDPModule] = [fully_shard(unit, **options) for unit in [*self.model.layers, self.model]]
        self.gradient_scale = 1.0  # what a loss is multiplied with so that gradients are sums
        for unit in self.units:
            if not sum_gradients(unit):
                self.gradient_scale = float(ranks)
            measure_collectives(unit, clock)
        self.model.to_empty(device=self.device)
        init_weights(self.model, seed)
        self.shards = dict(self.model.named_parameters())  # the model shows others while it is gathered

    def hold(self, held: bool) -> None:
        """Whether parameters stay gathered, and gradients unreduced, after the next backwards."""
        for unit in self.units:
            unit.set_requires_gradient_sync(not held)
            unit.set_reshard_after_backward(not held)

    def gather(self) -> None:
        """Every unit, until a backward that does not hold them."""
        for unit in self.units:
            unit.unshard()

    def weights(self) -> dict[str, Tensor]:
        """Whole, on every rank."""
        return {name: whole(parameter) for name, parameter in self.shards.items()}

    def gradients(self) -> dict[str, Tensor]:
        """Whole, on every rank."""
        found = {name: parameter.grad for name, parameter in self.shards.items()}
        return {name: whole(gradient) for name, gradient in found.items() if gradient is not None}


def whole(tensor: Any) -> Tensor:
    gathered: Tensor = tensor.detach().full_tensor()
    return gathered


def precision(dtype: Dtype) -> MixedPrecisionPolicy:
    """bf16 computes on copies of float32 weights, and sums gradients in float32."""
    if dtype != "bf16":
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def sum_gradients(unit: FSDPModule) -> bool:
    """Let reductions add instead of average. False where torch cannot be told: gloo has no scaled sums."""
    if not hasattr(unit, "set_force_sum_reduction_for_comms"):
        return False
    unit.set_force_sum_reduction_for_comms(True)
    unit.set_gradient_divide_factor(1.0)
    return True


def measure_collectives(unit: Any, clock: Clock) -> None:
    """Time what FSDP2 sends, where torch lets others send it; else it counts as part of the passes."""
    if hasattr(unit, "set_custom_all_gather") and hasattr(unit, "set_custom_reduce_scatter"):
        unit.set_custom_all_gather(Gather(clock))
        unit.set_custom_reduce_scatter(Sync(clock))


class Buffers:
    """Memory for a collective, as FSDP2 itself gets it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class Gather(Buffers):
    """An all-gather of one unit's parameters."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        with self.clock.call("gather", output_tensor.nbytes - input_tensor.nbytes):
            return ALL_GATHER(output_tensor, input_tensor, group=group, async_op=async_op)


class Sync(Buffers):
    """A reduce-scatter of one unit's gradients."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        with self.clock.call("sync", input_tensor.nbytes - output_tensor.nbytes):
            return REDUCE_SCATTER(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
