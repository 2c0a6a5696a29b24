"""What a rank holds of the states of a run, and which of it that rank writes: each shard is written by that one of its
holders that has least to write yet. Copies in the memory of the host let training go on while they are written.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.communication import all_gather_messages
from planner.models import TensorRegion, held_region, held_values
from planner.models.checkpoints import HeldShard
from planner.runtime.checkpoint.checkpoint_index import TensorKind, saved_kinds, shard_prefix
from planner.runtime.execute.task_executor import TaskExecutor
from planner.runtime.state.optimizers import optimizer_states
from planner.runtime.state.sharded_stage import ShardedStage

HeldBytes = dict[str, tuple[TensorRegion, int]]  # by name, the region and bytes of a shard that a rank holds


def held_shards(executor: TaskExecutor) -> dict[str, HeldShard]:
    """This rank's shards of all that is saved, by name: views of what is trained."""
    return {
        f"{shard_prefix(module, kind)}{name}": HeldShard(
            held_region(tensor, stage.splits.get(name, ())), held_values(tensor)
        )
        for module, stages in executor.local.stages.items()
        for kind in saved_kinds(executor.local.plan.uses.models[module])
        for stage in stages
        for name, tensor in tensors_of(executor, module, stage, kind).items()
    }


def tensors_of(executor: TaskExecutor, module: str, stage: ShardedStage, kind: TensorKind) -> Mapping[str, Tensor]:
    """This rank's tensors of one kind of a stage, by parameter."""
    if kind == "weights":
        return stage.weights()
    return optimizer_states(executor.optimizers[module], stage, kind) if stage.trained else {}


def written_names(held: Mapping[str, HeldShard], group: dist.ProcessGroup) -> list[str]:
    """Names of the shards that this rank writes. Every rank calls it."""
    own: HeldBytes = {name: (shard.region, shard.values.nbytes) for name, shard in held.items()}
    return divide(all_gather_messages(own, HeldBytes, group))[dist.get_rank()]


def divide(ranks: Sequence[HeldBytes]) -> list[list[str]]:
    """Of each rank, the names of the shards that it writes: each shard that some rank holds once, the largest first."""
    holders: dict[tuple[str, TensorRegion], list[int]] = {}
    size: dict[tuple[str, TensorRegion], int] = {}
    for rank, held in enumerate(ranks):
        for name, (region, bytes_held) in held.items():
            if region.numbers:
                holders.setdefault((name, region), []).append(rank)
                size[name, region] = bytes_held
    load, names = [0] * len(ranks), [list[str]() for _ in ranks]
    for shard in sorted(holders, key=lambda shard: (-size[shard], shard[0], shard[1].spans)):
        writer = min(holders[shard], key=lambda rank: load[rank])
        load[writer] += size[shard]
        names[writer].append(shard[0])
    return [sorted(of_rank) for of_rank in names]


class HostCopies:
    """Into the same memory each time: pages that are mapped already, and for a GPU pinned."""

    def __init__(self) -> None:
        self.buffers: dict[str, torch.Tensor] = {}

    def copy(self, shards: Mapping[str, HeldShard]) -> dict[str, HeldShard]:
        """The shards with their values as they are now."""
        on_gpu = {shard.values.device for shard in shards.values() if shard.values.is_cuda}
        copied = {name: HeldShard(shard.region, self.copy_one(name, shard.values)) for name, shard in shards.items()}
        for device in on_gpu:
            torch.cuda.current_stream(device).synchronize()
        return copied

    def copy_one(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """One tensor, of any shape; from a GPU it is there once its stream is."""
        if name not in self.buffers:
            self.buffers[name] = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
        return self.buffers[name].copy_(values, non_blocking=True)
