"""Parameters and gradients put together again from the parts that ranks hold, on the first rank."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import RunFailed
from planner.models.held import Split, part_of, whole_shape
from planner.runtime.local import Local
from planner.runtime.stage import Stage

Wholes = dict[str, dict[str, Tensor]]  # module → parameter → all of it
APART = 1e-6  # of its norm, by which ranks that all have a part may differ: some roundings of float32


class Piece(NamedTuple):
    """A rank's part of one parameter."""

    splits: tuple[Split, ...]
    values: Tensor


def weights(local: Local) -> Wholes:
    return assembled(local, Stage.weights)


def gradients(local: Local) -> Wholes:
    return assembled(local, Stage.gradients)


def assembled(local: Local, read: Callable[[Stage], dict[str, Tensor]]) -> Wholes:
    """On the first rank; nothing on the others. Every rank calls it."""
    own = {
        module: {
            name: Piece(stage.splits.get(name, ()), values.cpu())
            for stage in stages
            for name, values in read(stage).items()
            if stage.tells(name)
        }
        for module, stages in local.stages.items()
    }
    if dist.get_rank():
        dist.gather_object(own)
        return {}
    found: list[dict[str, dict[str, Piece]]] = [{}] * dist.get_world_size()
    dist.gather_object(own, found)
    return together(found)


def together(found: Sequence[Mapping[str, Mapping[str, Piece]]]) -> Wholes:
    """Of all ranks' parts, by module and parameter. Raises RunFailed where ranks differ in what all of them have."""
    wholes: Wholes = {}
    told: dict[tuple[str, str, tuple[Split, ...]], tuple[int, Tensor]] = {}
    for rank, of_rank in enumerate(found):
        for module, pieces in of_rank.items():
            for name, piece in pieces.items():
                first, values = told.setdefault((module, name, piece.splits), (rank, piece.values))
                if first == rank:
                    put(wholes.setdefault(module, {}), name, piece)
                elif differ(values, piece.values):
                    raise RunFailed(
                        f"`{module}.{name}` is one on rank {first} and another on rank {rank}; they should be the same",
                        fix="this is a bug of the runtime, please report it",
                    )
    return wholes


def put(wholes: dict[str, Tensor], name: str, piece: Piece) -> None:
    """A part where it belongs."""
    shape = whole_shape(piece.values.shape, piece.splits)
    whole = wholes.setdefault(name, torch.empty(shape, dtype=piece.values.dtype))
    part_of(whole, piece.splits).copy_(piece.values)


def differ(one: Tensor, other: Tensor) -> bool:
    """By more than ranks may that add up the same numbers in an order of their own. What overflows does so on all."""
    known = one.isfinite()
    if not torch.equal(known, other.isfinite()):
        return True
    one, other = one[known], other[known]
    return bool((one - other).norm() > APART * one.norm())
