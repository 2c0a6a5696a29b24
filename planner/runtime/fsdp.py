"""FSDP2 as the runtime uses it: sums instead of averages, collectives that are timed, and reductions at a task's word.

One private way in: `reduce` runs what FSDP2's own hooks would run at the end of a backward, as torch's pipelining does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from planner.launch.collectives import ALL_GATHER, REDUCE_SCATTER
from planner.runtime.clock import Clock
from planner.specs.job import Dtype

STORED = {"bf16": torch.float32, "float32": torch.float32, "float64": torch.float64}  # of weights and optimizer
COMPUTED = {**STORED, "bf16": torch.bfloat16}  # of activations


def shard(unit: nn.Module, group: dist.ProcessGroup, dtype: Dtype, device: torch.device, again: bool) -> None:
    """Spread the parameters of a unit that no other unit has over a group. `again`: gathered anew in each backward."""
    mesh = DeviceMesh.from_group(group, device.type)
    fully_shard(unit, mesh=mesh, mp_policy=precision(dtype), reshard_after_forward=None if again else False)
    made: Any = unit
    made.set_force_sum_reduction_for_comms(True)
    made.set_gradient_divide_factor(1.0)


def precision(dtype: Dtype) -> MixedPrecisionPolicy:
    """bf16 computes on copies of float32 weights, and sums gradients in float32."""
    if dtype != "bf16":
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def measure(unit: Any, clock: Clock) -> None:
    """Time what FSDP2 sends."""
    unit.set_custom_all_gather(Gather(clock))
    unit.set_custom_reduce_scatter(Sync(clock))


def add_up(unit: Any, replicas: dist.ProcessGroup, clock: Clock) -> None:
    """Behind each reduction, over the ranks that hold the same shards."""
    unit.set_all_reduce_hook(replicas_sum(replicas, clock))


def replicas_sum(group: dist.ProcessGroup, clock: Clock) -> Callable[[Tensor], None]:
    ranks = dist.get_world_size(group)

    def hook(gradient: Tensor) -> None:
        with clock.call("sync", 2 * gradient.nbytes * (ranks - 1) // ranks):
            dist.all_reduce(gradient, group=group)

    return hook


def hold(units: Iterable[FSDPModule], held: bool) -> None:
    """Whether parameters stay gathered, and gradients unreduced, after the next backwards."""
    for unit in units:
        unit.set_requires_gradient_sync(not held, recurse=False)
        unit.set_reshard_after_backward(not held, recurse=False)


def reduce(root: FSDPModule, units: Iterable[FSDPModule]) -> None:
    """The gradients that have piled up, in units that are gathered; zeros of a rank that had no pass."""
    state: Any = fully_shard.state(root)  # type: ignore[attr-defined]
    state._lazy_init()  # where no pass came before
    for unit in units:
        unit.set_reduce_scatter_unused_params(True)
    hold(units, False)
    for each in state._state_ctx.all_states:
        for group in reversed(parameter_groups(each)):
            group.post_backward()
    state._root_post_backward_final_callback()


def parameter_groups(state: Any) -> Sequence[Any]:
    """Of one unit; releases before 2.13 had at most one, under another name."""
    found: Sequence[Any] = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [group for group in found if group]


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
