"""What ranks tell each other that is no tensor: typed values, which travel as the bytes of a tensor, in msgpack.

Torch's collectives of objects pickle them: a rank that reads a pickle runs what it says, and whoever reaches a socket
of a rank could write one. Here a rank only reads what has the type that it expects.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import RunFailed

T = TypeVar("T")


def gather_messages(own: T, kind: Any, group: dist.ProcessGroup | None = None) -> list[T]:
    """What all ranks say, by rank, on rank 0; an empty list on the others. Every rank calls it, of a group of all."""
    raw = msgspec.msgpack.encode(own)
    sizes = all_sizes(raw, group)
    if dist.get_rank():
        dist.gather(as_tensor(raw, max(sizes), group), group=group)
        return []
    gathered = [as_tensor(b"", max(sizes), group) for _ in sizes]
    dist.gather(as_tensor(raw, max(sizes), group), gathered, group=group)
    return read_all(gathered, sizes, kind)


def all_gather_messages(own: T, kind: Any, group: dist.ProcessGroup | None = None) -> list[T]:
    """What all ranks say, by rank. Every rank calls it."""
    raw = msgspec.msgpack.encode(own)
    sizes = all_sizes(raw, group)
    gathered = [as_tensor(b"", max(sizes), group) for _ in sizes]
    dist.all_gather(gathered, as_tensor(raw, max(sizes), group), group=group)
    return read_all(gathered, sizes, kind)


def broadcast_message(own: T, kind: Any, group: dist.ProcessGroup | None = None) -> T:
    """What rank 0 says. Every rank calls it, of a group of all; what the others say is not sent."""
    raw = msgspec.msgpack.encode(own) if dist.get_rank() == 0 else b""
    size = torch.tensor([len(raw)], device=device_of(group))
    dist.broadcast(size, src=0, group=group)
    message = as_tensor(raw, int(size), group)
    dist.broadcast(message, src=0, group=group)
    (received,) = read_all([message], [int(size)], kind)
    return cast(T, received)


def all_sizes(raw: bytes, group: dist.ProcessGroup | None) -> list[int]:
    """How many bytes each rank has to say."""
    own = torch.tensor([len(raw)], device=device_of(group))
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, own, group=group)
    return [int(size) for size in sizes]


def as_tensor(raw: bytes, size: int, group: dist.ProcessGroup | None) -> Tensor:
    """Bytes as a tensor (size,), with zeros behind them."""
    return torch.frombuffer(bytearray(raw.ljust(size, b"\0")), dtype=torch.uint8).to(device_of(group))


def read_all(messages: Sequence[Tensor], sizes: Sequence[int], kind: Any) -> list[Any]:
    """What messages say. Raises RunFailed where one is no `kind`."""
    try:
        return [
            msgspec.msgpack.decode(message[:size].cpu().numpy().tobytes(), type=kind)
            for message, size in zip(messages, sizes, strict=True)
        ]
    except msgspec.DecodeError as error:
        fix = "start every rank with the same version of planner"
        raise RunFailed(f"another rank says what this one does not understand: {error}", fix=fix) from error


def device_of(group: dist.ProcessGroup | None) -> torch.device:
    """Where a group's tensors are."""
    return torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
