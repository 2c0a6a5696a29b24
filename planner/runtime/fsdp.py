"""FSDP2 as the runtime uses it: sums instead of averages, collectives that are timed, and reductions at a task's word.

One private way in: `reduce` runs what FSDP2's own hooks would run at the end of a backward, as torch's pipelining does.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from planner.launch.collectives import ALL_GATHER, REDUCE_SCATTER
from planner.runtime import rounded
from planner.runtime.clock import Clock
from planner.specs.parallelism import Dtype

STORED = {"bf16": torch.float32, "float32": torch.float32, "float64": torch.float64}  # of weights and optimizer
COMPUTED = {**STORED, "bf16": torch.bfloat16}  # of activations


def shard(unit: nn.Module, group: dist.ProcessGroup, dtype: Dtype, device: torch.device, again: bool) -> None:
    """Spread the parameters of a unit that no other unit has over a group. `again`: gathered anew in each backward."""
    mesh = DeviceMesh.from_group(group, device.type)
    fully_shard(
        unit,
        mesh=mesh,
        shard_placement_fn=partial(along, ranks=mesh.size()),
        mp_policy=precision(dtype),
        reshard_after_forward=None if again else False,
    )
    made: Any = unit
    made.set_force_sum_reduction_for_comms(True)
    made.set_gradient_divide_factor(1.0)


def along(parameter: nn.Parameter, ranks: int) -> Shard | None:
    """The dim that ranks share out: the first; but where it is too small for all of them to have some, as with few
    experts on many ranks, one that divides.
    """
    even = [dim for dim, size in enumerate(parameter.shape) if size % ranks == 0]
    return Shard(even[0]) if len(parameter) < ranks and even else None


def precision(dtype: Dtype) -> MixedPrecisionPolicy:
    """bf16 computes on copies of float32 weights, and sums gradients in float32."""
    if dtype != "bf16":
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def measure(unit: Any, clock: Clock, rounds: bool) -> None:
    """Time what FSDP2 sends. `rounds`: gradients travel in bfloat16."""
    unit.set_custom_all_gather(Gather(clock))
    unit.set_custom_reduce_scatter(Sync(clock, rounds))


def add_up(unit: Any, replicas: dist.ProcessGroup, clock: Clock, rounds: bool) -> None:
    """Behind each reduction, over the ranks that hold the same shards."""
    unit.set_all_reduce_hook(replicas_sum(replicas, clock, rounds))


def replicas_sum(group: dist.ProcessGroup, clock: Clock, rounds: bool) -> Callable[[Tensor], None]:
    ranks, add = dist.get_world_size(group), rounded.all_reduce if rounds else all_reduce

    def hook(gradient: Tensor) -> None:
        size = gradient.element_size()
        there = rounded.TRAVELS.itemsize if rounds else size
        if gradient.is_cuda:  # from the stream of reductions; this runs on another
            gradient.record_stream(torch.cuda.current_stream(gradient.device))
        with clock.call("sync", (there + size) * gradient.numel() * (ranks - 1) // ranks):
            add(gradient, group)

    return hook


def all_reduce(gradient: Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(gradient, group=group)


def keep(units: Iterable[FSDPModule], kept: bool) -> None:
    """Whether gradients stay unreduced after the next backwards."""
    for unit in units:
        unit.set_requires_gradient_sync(not kept, recurse=False)


def hold(units: Iterable[FSDPModule], held: bool) -> None:
    """Whether parameters stay gathered, and gradients unreduced, after the next backwards."""
    for unit in units:
        keep([unit], held)
        unit.set_reshard_after_backward(not held, recurse=False)


def reduce(units: Sequence[FSDPModule]) -> None:
    """The gradients that have piled up, in units that are gathered, the root last; zeros of a rank that had no pass."""
    state: Any = fully_shard.state(units[-1])  # type: ignore[attr-defined]
    state._lazy_init()  # where no pass came before
    hold(units, False)
    for each in state._state_ctx.all_states:
        for group in reversed(parameter_groups(each)):
            pile_up_group(group)
            fill(group)
            group.post_backward()
    state._root_post_backward_final_callback()


def pile_up(units: Iterable[FSDPModule]) -> None:
    """New gradients onto the sums so far, which are in float32 where they are themselves in bf16."""
    for unit in units:
        for group in parameter_groups(fully_shard.state(unit)):  # type: ignore[attr-defined]
            pile_up_group(group)


def pile_up_group(group: Any) -> None:
    for parameter in group.fsdp_params:
        parameter.accumulate_unsharded_grad_if_needed()
        parameter.to_accumulated_grad_if_needed()


def fill(group: Any) -> None:
    """Zeros where a parameter has no gradient: those of a unit are reduced together, in one dtype."""
    for parameter in group.fsdp_params:
        if parameter.unsharded_accumulated_grad is None and parameter.unsharded_param.grad is None:
            zeros = torch.zeros_like(parameter.unsharded_param, dtype=parameter.reduce_dtype)
            parameter.unsharded_accumulated_grad = zeros


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
    """A reduce-scatter of one unit's gradients. `rounds`: with half the bytes."""

    def __init__(self, clock: Clock, rounds: bool) -> None:
        super().__init__(clock)
        self.rounds = rounds

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        size = rounded.TRAVELS.itemsize if self.rounds else input_tensor.element_size()
        with self.clock.call("sync", size * (input_tensor.numel() - output_tensor.numel())):
            if self.rounds:
                return rounded.reduce_scatter(output_tensor, input_tensor, group)
            return REDUCE_SCATTER(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
