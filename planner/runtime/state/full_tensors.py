"""Unshards parameters, gradients and optimizer states onto rank 0: one tensor at a time, so that no rank needs memory
for more than the largest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from planner.errors import RunFailed
from planner.models import ParameterSplit, full_shape, take_shard, write_shard
from planner.runtime.state.rank_state import RankState
from planner.runtime.state.sharded_stage import ShardedStage

FullTensorsByModule = dict[str, dict[str, Tensor]]  # module → parameter → unsharded tensor
StageTensorReader = Callable[
    [ShardedStage], Mapping[str, Tensor]
]  # reads a rank's tensors, by parameter: tp or expert shards, which FSDP2 may shard further
COMPARED_AT_ONCE = 2**22  # numbers
REPLICA_TOLERANCE = 1e-6  # relative difference in norm allowed between replicas: some roundings of float32


class TensorShard(NamedTuple):
    """A rank's shard of one tensor."""

    splits: tuple[ParameterSplit, ...]
    values: Tensor


class ShardDescription(NamedTuple):
    """Description of a shard that a rank will send."""

    splits: tuple[ParameterSplit, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype


def full_weights(local: RankState) -> FullTensorsByModule:
    """All unsharded parameters, on rank 0; an empty dict on the others. Every rank calls it."""
    return gather_full_tensors(local, ShardedStage.weights)


def full_gradients(local: RankState) -> FullTensorsByModule:
    """All unsharded gradients, on rank 0; an empty dict on the others. Every rank calls it."""
    return gather_full_tensors(local, ShardedStage.gradients)


def gather_full_tensors(local: RankState, read: StageTensorReader) -> FullTensorsByModule:
    """All tensors at once, on rank 0; an empty dict on the others. Every rank calls it."""
    full = {module: dict(FullTensors(local, module, read)) for module in local.plan.layouts}
    return {module: tensors for module, tensors in full.items() if tensors}


class FullTensors:
    """Iterator over the tensors of a module, sorted by name, unsharded on rank 0. On the others it yields nothing, and
    iterating sends their shards. Every rank must create it and iterate over it once.
    """

    def __init__(self, local: RankState, module: str, read: StageTensorReader) -> None:
        self.module, self.rank, self.group = module, local.worker.rank, local.tensor_group
        stages = local.stages.get(module, ())
        self.own = {name: tensor for stage in stages for name, tensor in read(stage).items()}
        own_parts = {
            name: ShardDescription(
                stage.splits.get(name, ()) if tensor.dim() else (), tuple(tensor.shape), tensor.dtype
            )
            for stage in stages
            for name, tensor in read(stage).items()
            if stage.is_first_owner(name)
        }
        self.parts = gather_descriptions(own_parts, self.group)
        self.names = broadcast_names(sorted({name for of_rank in self.parts.values() for name in of_rank}), self.group)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Yields name and tensor. Raises RunFailed where replicas differ."""
        for name in self.names:
            dist.barrier(
                group=self.group
            )  # else ranks that shard a tensor could wait for one that still waits for rank 0
            if self.rank == 0:
                yield name, assemble(f"{self.module}.{name}", self.receive_parts(name))
            else:
                self.send_part(name)

    def send_part(self, name: str) -> None:
        """Unshards this rank's part with those that share it, and sends it to rank 0 if it is the first owner."""
        values = unshard(self.own[name]) if name in self.own else None
        if name in self.parts[self.rank] and values is not None:
            dist.send(values.cpu().contiguous(), 0, group=self.group)

    def receive_parts(self, name: str) -> Iterator[tuple[int, TensorShard]]:
        """Yields rank and shard of every owner, received in the order of ranks."""
        own = unshard(self.own[name]) if name in self.own else None
        for rank, of_rank in self.parts.items():
            if name not in of_rank:
                continue
            part = of_rank[name]
            if rank == 0 and own is not None:
                yield rank, TensorShard(part.splits, own.cpu())
            else:
                values = torch.empty(part.shape, dtype=part.dtype)
                dist.recv(values, rank, group=self.group)
                yield rank, TensorShard(part.splits, values)


def gather_descriptions(
    own: dict[str, ShardDescription], group: dist.ProcessGroup
) -> dict[int, dict[str, ShardDescription]]:
    """Descriptions of all ranks on rank 0; on another its own only."""
    if dist.get_rank():
        dist.gather_object(own, group=group)
        return {dist.get_rank(): own}
    gathered: list[dict[str, ShardDescription]] = [{}] * dist.get_world_size()
    dist.gather_object(own, gathered, group=group)
    return dict(enumerate(gathered))


def broadcast_names(names: list[str], group: dist.ProcessGroup) -> list[str]:
    """The names of rank 0, on all ranks."""
    message = [names]
    dist.broadcast_object_list(message, 0, group=group)
    return message[0]


def unshard(tensor: Any) -> Tensor:
    """This rank's tp or expert shard (of its local shape), gathered from the FSDP2 shards of it."""
    detached: Tensor = tensor.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def assemble(name: str, parts: Iterable[tuple[int, TensorShard]]) -> Tensor:
    """The unsharded tensor, of shape `full_shape`, from the shards of all ranks.

    Raises RunFailed where replicas of a shard differ.
    """
    full: Tensor | None = None
    first: dict[tuple[ParameterSplit, ...], int] = {}
    for rank, (splits, values) in parts:
        if full is None:
            full = torch.empty(full_shape(values.shape, splits), dtype=values.dtype)
        if splits not in first:
            first[splits] = rank
            write_shard(full, splits, values)
        elif replicas_differ(take_shard(full, splits), values):
            raise RunFailed(
                f"`{name}` differs between rank {first[splits]} and rank {rank}: replicas should be the same",
                fix="this is a bug of the runtime, please report it",
            )
    assert full is not None, "some rank has it"
    return full


def replicas_differ(one: Tensor, other: Tensor) -> bool:
    """Whether replicas (of one shape) differ by more than sums in another order may, or in which numbers are finite."""
    if torch.equal(one, other):
        return False
    squared_difference = squared_norm = 0.0
    for mine, theirs in zip(slices(one), slices(other), strict=True):
        finite = mine.isfinite()
        if not torch.equal(finite, theirs.isfinite()):
            return True
        mine, theirs = mine[finite].double(), theirs[finite].double()
        squared_difference += float((mine - theirs).square().sum())
        squared_norm += float(mine.square().sum())
    return squared_difference > REPLICA_TOLERANCE**2 * squared_norm


def slices(tensor: Tensor) -> Sequence[Tensor]:
    """Slices of a tensor (any shape) along the first dim, so that comparing needs little memory."""
    rows = tensor if tensor.dim() else tensor[None]
    found: Sequence[Tensor] = rows.split(max(1, COMPARED_AT_ONCE // max(1, rows[:1].numel())))  # type: ignore[no-untyped-call]
    return found
