"""Parameters, gradients and optimizer states put together again from the parts that ranks hold, on the first rank: one
at a time, so that no rank needs memory for more than the largest.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from planner.errors import RunFailed
from planner.models.held import Split, part_of, put_part, whole_shape
from planner.models.safetensors import Described
from planner.runtime.local import Local
from planner.runtime.stage import Stage

Wholes = dict[str, dict[str, Tensor]]  # module → parameter → all of it
Read = Callable[[Stage], Mapping[str, Tensor]]  # of what a rank holds: parts, or shards of parts, by parameter
SLICE = 2**22  # numbers that are compared at once
APART = 1e-6  # of its norm, by which ranks that all have a part may differ: some roundings of float32


class Piece(NamedTuple):
    """A rank's part of one tensor."""

    splits: tuple[Split, ...]
    values: Tensor


class Coming(NamedTuple):
    """A part that a rank will send."""

    splits: tuple[Split, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype


def weights(local: Local) -> Wholes:
    return assembled(local, Stage.weights)


def gradients(local: Local) -> Wholes:
    return assembled(local, Stage.gradients)


def assembled(local: Local, read: Read) -> Wholes:
    """All at once, on the first rank; nothing on the others. Every rank calls it."""
    found = {module: dict(Turns(local, module, read)) for module in local.plan.layouts}
    return {module: tensors for module, tensors in found.items() if tensors}


class Turns:
    """The tensors of a module in the order of their names, whole on the first rank; on the others there are none, and
    to go through them is to send what they have. Every rank makes it and goes through it once.
    """

    def __init__(self, local: Local, module: str, read: Read) -> None:
        self.module, self.rank, self.group = module, local.worker.rank, local.patient
        stages = local.stages.get(module, ())
        self.own = {name: tensor for stage in stages for name, tensor in read(stage).items()}
        told = {
            name: Coming(stage.splits.get(name, ()) if tensor.dim() else (), tuple(tensor.shape), tensor.dtype)
            for stage in stages
            for name, tensor in read(stage).items()
            if stage.tells(name)
        }
        self.told = gathered(told, self.group)
        self.names = agreed(sorted({name for of_rank in self.told.values() for name in of_rank}), self.group)

    @property
    def described(self) -> dict[str, Described]:
        """On the first rank, each tensor as it will come."""
        each = {name: coming for of_rank in self.told.values() for name, coming in of_rank.items()}
        return {
            name: Described(each[name].dtype, tuple(whole_shape(each[name].shape, each[name].splits)))
            for name in sorted(each)
        }

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Raises RunFailed where ranks differ in what all of them have."""
        for name in self.names:
            dist.barrier(group=self.group)  # ranks that share a tensor wait for no rank that waits for the first
            if self.rank == 0:
                yield name, together(f"{self.module}.{name}", self.pieces(name))
            else:
                self.give(name)

    def send(self) -> None:
        """On a rank that is not the first."""
        deque(self, maxlen=0)

    def give(self, name: str) -> None:
        """To the first rank, if this one is to; all who share it put it together."""
        values = whole(self.own[name]) if name in self.own else None
        if name in self.told[self.rank] and values is not None:
            dist.send(values.cpu().contiguous(), 0, group=self.group)

    def pieces(self, name: str) -> Iterator[tuple[int, Piece]]:
        """From rank after rank: each sends when it is its turn."""
        own = whole(self.own[name]) if name in self.own else None
        for rank, told in self.told.items():
            if name not in told:
                continue
            coming = told[name]
            if rank == 0 and own is not None:
                yield rank, Piece(coming.splits, own.cpu())
            else:
                values = torch.empty(coming.shape, dtype=coming.dtype)
                dist.recv(values, rank, group=self.group)
                yield rank, Piece(coming.splits, values)


def gathered(own: dict[str, Coming], group: dist.ProcessGroup) -> dict[int, dict[str, Coming]]:
    """Of all ranks on the first; on another its own."""
    if dist.get_rank():
        dist.gather_object(own, group=group)
        return {dist.get_rank(): own}
    found: list[dict[str, Coming]] = [{}] * dist.get_world_size()
    dist.gather_object(own, found, group=group)
    return dict(enumerate(found))


def agreed(names: list[str], group: dist.ProcessGroup) -> list[str]:
    """Those of the first rank, on all."""
    said = [names]
    dist.broadcast_object_list(said, 0, group=group)
    return said[0]


def whole(tensor: Any) -> Tensor:
    """This rank's part, from the shards of it."""
    found: Tensor = tensor.detach()
    return found.full_tensor() if isinstance(found, DTensor) else found


def together(name: str, pieces: Iterable[tuple[int, Piece]]) -> Tensor:
    """Of all ranks' parts. Raises RunFailed where ranks differ in what all of them have."""
    made: Tensor | None = None
    first: dict[tuple[Split, ...], int] = {}
    for rank, (splits, values) in pieces:
        if made is None:
            made = torch.empty(whole_shape(values.shape, splits), dtype=values.dtype)
        if splits not in first:
            first[splits] = rank
            put_part(made, splits, values)
        elif differ(part_of(made, splits), values):
            raise RunFailed(
                f"`{name}` is one on rank {first[splits]} and another on rank {rank}; they should be the same",
                fix="this is a bug of the runtime, please report it",
            )
    assert made is not None, "somebody has it"
    return made


def differ(one: Tensor, other: Tensor) -> bool:
    """By more than ranks may that add up the same numbers in an order of their own. What overflows does so on all."""
    if torch.equal(one, other):
        return False
    apart = norm = 0.0
    for mine, theirs in zip(slices(one), slices(other), strict=True):
        known = mine.isfinite()
        if not torch.equal(known, theirs.isfinite()):
            return True
        mine, theirs = mine[known].double(), theirs[known].double()
        apart += float((mine - theirs).square().sum())
        norm += float(mine.square().sum())
    return apart > APART**2 * norm


def slices(tensor: Tensor) -> Sequence[Tensor]:
    """Along its first dim, so that what is computed of one needs little room."""
    rows = tensor if tensor.dim() else tensor[None]
    found: Sequence[Tensor] = rows.split(max(1, SLICE // max(1, rows[:1].numel())))  # type: ignore[no-untyped-call]
    return found
