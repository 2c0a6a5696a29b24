"""FSDP2 as the runtime uses it: gradient sums instead of averages, timed collectives, and reductions issued by tasks.

Private API is used in `reduce`, which runs what FSDP2's own hooks run at the end of a backward, as torch's pipelining
does.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from planner.launch.communication import ALL_GATHER, REDUCE_SCATTER
from planner.runtime.measure.step_clock import StepClock
from planner.runtime.state.replicas import SENT_DTYPE, reduce_scatter_in_bf16, timed_sum
from planner.specs.parallelism import Dtype

STORED_DTYPES = {
    "bf16": torch.float32,
    "float32": torch.float32,
    "float64": torch.float64,
}  # dtype of weights and optimizer state
COMPUTE_DTYPES = {**STORED_DTYPES, "bf16": torch.bfloat16}  # dtype of activations


def shard(
    unit: nn.Module, group: dist.ProcessGroup, dtype: Dtype, device: torch.device, gather_for_backward: bool
) -> None:
    """Shards the parameters of a unit over a group. `gather_for_backward`: reshard them after forward."""
    mesh = DeviceMesh.from_group(group, device.type)
    fully_shard(
        unit,
        mesh=mesh,
        shard_placement_fn=partial(shard_dimension, ranks=mesh.size()),
        mp_policy=precision(dtype),
        reshard_after_forward=None if gather_for_backward else False,
    )
    sharded: Any = unit
    sharded.set_force_sum_reduction_for_comms(True)
    sharded.set_gradient_divide_factor(1.0)


def shard_dimension(parameter: nn.Parameter, ranks: int) -> Shard | None:
    """The dimension of a parameter (any shape) to shard: the first, or one that divides.

    The latter where the first is smaller than the number of ranks, as with few experts.
    """
    even = [dim for dim, size in enumerate(parameter.shape) if size % ranks == 0]
    return Shard(even[0]) if len(parameter) < ranks and even else None


def precision(dtype: Dtype) -> MixedPrecisionPolicy:
    """Mixed precision policy: bf16 computes on copies of float32 weights, and reduces gradients in float32."""
    if dtype != "bf16":
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def time_collectives(unit: Any, clock: StepClock, in_bf16: bool) -> None:
    """Times the collectives of FSDP2. `in_bf16`: gradients are sent in bfloat16."""
    unit.set_custom_all_gather(TimedAllGather(clock))
    unit.set_custom_reduce_scatter(TimedReduceScatter(clock, in_bf16))


def sum_over_replicas(unit: Any, replicas: dist.ProcessGroup, clock: StepClock, in_bf16: bool) -> None:
    """After each reduction, sums gradients over the ranks that hold the same shards (HSDP)."""
    unit.set_all_reduce_hook(timed_sum(replicas, clock, in_bf16))


def keep_unreduced(units: Iterable[FSDPModule], kept: bool) -> None:
    """Sets whether gradients stay unreduced after the next backwards."""
    for unit in units:
        unit.set_requires_gradient_sync(not kept, recurse=False)


def keep_gathered(units: Iterable[FSDPModule], held: bool) -> None:
    """Sets whether parameters stay gathered, and gradients unreduced, after the next backwards."""
    for unit in units:
        keep_unreduced([unit], held)
        unit.set_reshard_after_backward(not held, recurse=False)


def reduce(units: Sequence[FSDPModule]) -> None:
    """Reduces the accumulated gradients of gathered units, the root last; a rank without a pass contributes zeros."""
    state: Any = fully_shard.state(units[-1])  # type: ignore[attr-defined]
    state._lazy_init()  # needed if no forward ran before
    keep_gathered(units, False)
    for each in state._state_ctx.all_states:
        for group in reversed(parameter_groups(each)):
            accumulate_group(group)
            fill_missing_gradients(group)
            group.post_backward()
    state._root_post_backward_final_callback()


def accumulate(units: Iterable[FSDPModule]) -> None:
    """Adds new gradients to the sums so far, which are float32 where gradients are bf16."""
    for unit in units:
        for group in parameter_groups(fully_shard.state(unit)):  # type: ignore[attr-defined]
            accumulate_group(group)


def accumulate_group(group: Any) -> None:
    for parameter in group.fsdp_params:
        parameter.accumulate_unsharded_grad_if_needed()
        parameter.to_accumulated_grad_if_needed()


def fill_missing_gradients(group: Any) -> None:
    """Sets zeros where a parameter has no gradient: a unit's gradients are reduced together, in one dtype."""
    for parameter in group.fsdp_params:
        if not parameter.sharded_param.requires_grad:
            continue
        if parameter.unsharded_accumulated_grad is None and parameter.unsharded_param.grad is None:
            zeros = torch.zeros_like(parameter.unsharded_param, dtype=parameter.reduce_dtype)
            parameter.unsharded_accumulated_grad = zeros


def parameter_groups(state: Any) -> Sequence[Any]:
    """FSDP2 parameter groups of one unit; torch before 2.13 has at most one, under another name."""
    groups: Sequence[Any] = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [group for group in groups if group]


class CollectiveBuffers:
    """Allocates buffers of a collective as FSDP2 does itself."""

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised tensor of shape `size`."""
        return torch.empty(*size, dtype=dtype, device=device)


class TimedAllGather(CollectiveBuffers):
    """A timed all-gather of one unit's parameters."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        with self.clock.record_collective("gather", output_tensor.nbytes - input_tensor.nbytes):
            return ALL_GATHER(output_tensor, input_tensor, group=group, async_op=async_op)


class TimedReduceScatter(CollectiveBuffers):
    """A timed reduce-scatter of one unit's gradients. `in_bf16`: with half the bytes of float32."""

    def __init__(self, clock: StepClock, in_bf16: bool) -> None:
        super().__init__(clock)
        self.in_bf16 = in_bf16

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> Any:
        size = SENT_DTYPE.itemsize if self.in_bf16 else input_tensor.element_size()
        with self.clock.record_collective("sync", size * (input_tensor.numel() - output_tensor.numel())):
            if self.in_bf16:
                return reduce_scatter_in_bf16(output_tensor, input_tensor, group)
            return REDUCE_SCATTER(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
