"""Copies of tensors in the memory of the host, so that training may go on while they are written."""

from collections.abc import Mapping

import torch

from planner.models.checkpoints import HeldShard


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
