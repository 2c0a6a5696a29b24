"""Where ranks wait for each other."""

import torch
import torch.distributed as dist


def barrier(group: dist.ProcessGroup | None = None) -> None:
    """Returns when every rank of the group, or of the world, has called it. NCCL is told which GPU is this rank's, as
    it would guess by the rank's number and warn that it did.
    """
    on_gpu = dist.get_backend(group) == "nccl"
    dist.barrier(group, device_ids=[torch.cuda.current_device()] if on_gpu else None)
