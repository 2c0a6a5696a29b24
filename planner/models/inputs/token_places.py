"""Where tokens are, in modules in which that takes several numbers: patches in rows and columns of their images, and
their outputs among the text that reads them.

Patches that become one output are consecutive, as in media_contents.py: blocks of merge x merge row by row, and row by
row within a block.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from planner.models.kernels.attention_tiles import GridWindows
from planner.specs.layers import Module
from planner.specs.workload.items import Document, TokenGrid, near_square

ItemGrids = Mapping[int, Sequence[TokenGrid]]  # by item of a module: which of its tokens are places of images


def token_places(
    spec: Module,
    packed: Sequence[Document],
    spans: Sequence[tuple[Document, tuple[int, int]]],
    grids: ItemGrids,
    device: torch.device,
) -> dict[str, Any]:
    """The fields `places`, `extents` and `windows` of a batch of these documents, of which a rank has the spans; none
    for modules whose tokens have a place in one axis.
    """
    if spec.position_axes == 1:
        return {}
    of = {document: document_places(spec, document, grids.get(document.item, ())) for document in packed}
    none = torch.zeros(0, spec.position_axes, dtype=torch.int64)
    own = [of.get(document, none)[slice(*span)] for document, span in spans]
    fields: dict[str, Any] = {"places": torch.cat(own).to(device)}
    if spec.place_table_size:
        whole = {document: (places.amax(0, keepdim=True) + 1).expand_as(places) for document, places in of.items()}
        fields["extents"] = torch.cat([whole.get(document, none)[slice(*span)] for document, span in spans]).to(device)
    if spec.window_side:
        fields["windows"] = grid_windows([of[document] for document in packed], spec.window_side, device)
    return fields


def document_places(spec: Module, document: Document, grids: Sequence[TokenGrid]) -> Tensor:
    """Places `(tokens, axes)` int64 of a document's tokens; `grids` of its item, or of patches one near a square."""
    _, tokens, begin = document
    own = [grid._replace(first=grid.first - begin) for grid in grids if begin <= grid.first < begin + tokens]
    if spec.position_axes == 3:
        return text_places(tokens, own)
    unit = spec.tokens_per_output
    height, width = own[0][1:] if own else near_square(tokens, unit)
    return patch_places(height, width, isqrt(unit))


def patch_places(height: int, width: int, merge: int) -> Tensor:
    """Row and column `(height * width, 2)` int64 of each patch of an image, merge x merge neighbours consecutive."""
    grid = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    blocks = grid.view(height // merge, merge, width // merge, merge, 2)
    return blocks.transpose(1, 2).reshape(-1, 2)


def text_places(tokens: int, grids: Iterable[TokenGrid]) -> Tensor:
    """Time, row and column `(tokens, 3)` int64 of text among whose tokens are grids (Qwen2-VL, arXiv 2409.12191).

    The three count alike in text. An image is one moment; its rows and columns count from there, and what follows goes
    on from the largest.
    """
    parts, at, place = [], 0, 0
    for first, height, width in sorted(grids):
        parts.append(counted(place, first - at))
        place += first - at
        moment = torch.zeros(height * width, 1, dtype=torch.int64)
        parts.append(place + torch.cat([moment, patch_places(height, width, 1)], 1))
        at, place = first + height * width, place + max(height, width)
    return torch.cat([*parts, counted(place, tokens - at)])


def counted(begin: int, tokens: int) -> Tensor:
    """Places `(tokens, 3)` of text from `begin` on."""
    return torch.arange(begin, begin + tokens)[:, None].expand(-1, 3)


def grid_windows(images: Sequence[Tensor], side: int, device: torch.device) -> GridWindows:
    """The windows of `side` x `side` patches of packed images with these places `(patches, 2)`, each from its first row
    and column on; those at its other edges may be smaller.
    """
    numbers, found = [torch.zeros(0, dtype=torch.int64)], 0
    for places in images:
        down, across = (places // side).unbind(1)
        numbers.append(found + down * (across.max() + 1) + across)
        found = int(numbers[-1].max()) + 1
    number = torch.cat(numbers)
    order = torch.argsort(number, stable=True)
    ends = torch.tensor([0, *map(len, images)]).cumsum(0)
    counts = torch.bincount(number, minlength=found).cumsum(0, dtype=torch.int32)
    return GridWindows(
        numbers=number,
        starts=ends,
        order=order.to(device),
        places=torch.argsort(order).to(device),
        cu_seqlens=torch.cat([counts.new_zeros(1), counts]),
    )
