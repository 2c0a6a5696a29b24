"""Parameters and gradients of all ranks, made whole on rank 0.

Every rank sends what it holds straight to rank 0, many shards in one message: nobody waits for those that share a
tensor with it, and a message costs as much for a small tensor as for a large one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import RunFailed
from planner.launch.communication import gather_messages
from planner.models import TensorRegion, copy_shared, held_region, held_values, whole_region
from planner.models.checkpoints import DTYPE_NAMES, DTYPES, HeldShard
from planner.runtime.state.rank_state import RankState
from planner.runtime.state.sharded_stage import ShardedStage

FullTensorsByModule = dict[str, dict[str, Tensor]]  # module → parameter → unsharded tensor
StageTensorReader = Callable[[ShardedStage], Mapping[str, Tensor]]  # by parameter, this rank's shards
TensorKey = tuple[str, str]  # module and parameter
MESSAGE_NUMBERS = 2**24  # most numbers of a message; a shard that has more is a message of its own
COMPARED_AT_ONCE = 2**22  # numbers
REPLICA_TOLERANCE = 1e-6  # relative difference in norm allowed between replicas: some roundings of float32


class SentShard(NamedTuple):
    """What rank 0 knows of a shard before it receives it."""

    region: TensorRegion
    dtype: str  # by its name in safetensors files


class FullTensor:
    """A tensor on rank 0, of which ranks bring their shards."""

    def __init__(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        self.name, self.region = name, whole_region(shape)
        self.values = torch.empty(self.region.full, dtype=dtype)
        self.brought: dict[TensorRegion, int] = {}  # by which rank first

    def add(self, rank: int, shard: HeldShard) -> None:
        """Write a shard into its place. Raises RunFailed where another rank brought the same one with other numbers."""
        first = self.brought.setdefault(shard.region, rank)
        if first == rank:
            copy_shared(self.values, self.region, shard.values, shard.region)
        elif replicas_differ(self.values_in(shard.region), shard.values):
            raise RunFailed(
                f"`{self.name}` differs between rank {first} and rank {rank}: replicas should be the same",
                fix="this is a bug of the runtime, please report it",
            )

    def values_in(self, region: TensorRegion) -> Tensor:
        """A copy of the numbers of a region, of its shape."""
        values = torch.empty(region.shape, dtype=self.values.dtype)
        copy_shared(values, region, self.values, self.region)
        return values


def full_weights(local: RankState) -> FullTensorsByModule:
    """All unsharded parameters, on rank 0; an empty dict on the others. Every rank calls it."""
    return gather_full_tensors(local, ShardedStage.weights)


def full_gradients(local: RankState) -> FullTensorsByModule:
    """All unsharded gradients, on rank 0; an empty dict on the others. Every rank calls it."""
    return gather_full_tensors(local, ShardedStage.gradients)


def gather_full_tensors(local: RankState, read: StageTensorReader) -> FullTensorsByModule:
    """All tensors, on rank 0; an empty dict on the others. Every rank calls it. Raises RunFailed if replicas differ."""
    shards = own_shards(local, read)
    described = {key: SentShard(shard.region, DTYPE_NAMES[shard.values.dtype]) for key, shard in shards.items()}
    sent = gather_messages(described, dict[TensorKey, SentShard], local.tensor_group)
    if local.worker.rank:
        send_shards(shards, local.tensor_group)
        return {}
    full = assemble(chain([(0, shards)], receive_shards(sent, local.tensor_group)))
    found: FullTensorsByModule = {}
    for (module, name), tensor in sorted(full.items()):
        found.setdefault(module, {})[name] = tensor
    return found


def own_shards(local: RankState, read: StageTensorReader) -> dict[TensorKey, HeldShard]:
    """What this rank holds, on the host, but for replicas of what an earlier rank of a data-parallel group holds."""
    return {
        (module, name): HeldShard(held_region(tensor, stage.splits.get(name, ())), held_values(tensor).cpu())
        for module, stages in local.stages.items()
        for stage in stages
        for name, tensor in sorted(read(stage).items())
        if stage.is_first_replica(name)
    }


def messages(sizes: Mapping[TensorKey, tuple[int, torch.dtype]]) -> Iterator[list[TensorKey]]:
    """Shards that travel together, in their order: of one dtype, and together no larger than a message.

    `sizes`: of each shard, its numbers and their dtype.
    """
    together: list[TensorKey] = []
    numbers = 0
    for key, (size, dtype) in sizes.items():
        if together and (sizes[together[0]][1] != dtype or numbers + size > MESSAGE_NUMBERS):
            yield together
            together, numbers = [], 0
        together.append(key)
        numbers += size
    if together:
        yield together


def send_shards(shards: Mapping[TensorKey, HeldShard], group: dist.ProcessGroup) -> None:
    """Sends this rank's shards to rank 0."""
    sizes = {key: (shard.values.numel(), shard.values.dtype) for key, shard in shards.items()}
    for together in messages(sizes):
        dist.send(torch.cat([shards[key].values.reshape(-1) for key in together]), 0, group=group)


def receive_shards(
    sent: Sequence[Mapping[TensorKey, SentShard]], group: dist.ProcessGroup
) -> Iterator[tuple[int, dict[TensorKey, HeldShard]]]:
    """Yields each other rank with the shards of one of its messages, in the order of ranks."""
    for rank, of_rank in enumerate(sent[1:], 1):
        sizes = {key: (shard.region.numbers, DTYPES[shard.dtype]) for key, shard in of_rank.items()}
        for together in messages(sizes):
            numbers = [sizes[key][0] for key in together]
            buffer = torch.empty(sum(numbers), dtype=sizes[together[0]][1])
            dist.recv(buffer, rank, group=group)
            parts = zip(together, buffer.split(numbers), strict=True)  # type: ignore[no-untyped-call]
            yield (
                rank,
                {key: HeldShard(of_rank[key].region, part.view(of_rank[key].region.shape)) for key, part in parts},
            )


def assemble(brought: Iterable[tuple[int, Mapping[TensorKey, HeldShard]]]) -> dict[TensorKey, Tensor]:
    """The unsharded tensors, from shards that ranks hold of them.

    Raises RunFailed where replicas of a shard differ.
    """
    full: dict[TensorKey, FullTensor] = {}
    for rank, shards in brought:
        for key, shard in shards.items():
            if key not in full:
                full[key] = FullTensor(".".join(key), shard.region.full, shard.values.dtype)
            full[key].add(rank, shard)
    for tensor in full.values():
        assert sum(region.numbers for region in tensor.brought) >= tensor.values.numel(), f"ranks lack {tensor.name}"
    return {key: tensor.values for key, tensor in full.items()}


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
