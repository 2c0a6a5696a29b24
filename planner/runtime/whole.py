"""Parameters and gradients put together again from the parts that ranks hold, on the first rank."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from planner.models.held import Split
from planner.runtime.local import Local
from planner.runtime.stage import Stage

Wholes = dict[str, dict[str, Tensor]]  # module → parameter → all of it


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
    wholes: Wholes = {}
    for of_rank in found:
        for module, pieces in of_rank.items():
            for name, piece in pieces.items():
                put(wholes.setdefault(module, {}), name, piece)
    return wholes


def put(wholes: dict[str, Tensor], name: str, piece: Piece) -> None:
    """A part where it belongs."""
    shape = list(piece.values.shape)
    for split in piece.splits:
        shape[split.dim] *= split.part.of
    target = wholes.setdefault(name, torch.empty(shape, dtype=piece.values.dtype))
    for split in piece.splits:
        target = target.narrow(split.dim, split.part.span(shape[split.dim])[0], piece.values.shape[split.dim])
    target.copy_(piece.values)
