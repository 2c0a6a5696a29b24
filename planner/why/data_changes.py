"""What another resolution or frame rate would cost. These are decisions about the data, and are priced only: items keep
their places, their sizes become others, and samples that read them have as many tokens fewer.
"""

from collections.abc import Callable, Iterator
from math import isqrt, sqrt

from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.layers import Vit
from planner.specs.layers.resize import ImageSize, SmartResize, TiledResize
from planner.specs.workload.items import ItemSize, Size, item_outputs, near_square, part_lengths

Resized = Callable[[Vit, Size], Size]


def other_data(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The plan with other data, each with what is another in it."""
    for name, module in plan.uses.models.items():
        if isinstance(module, Vit):
            pixels = resized(plan, name, module, half_the_pixels)
            if pixels:
                yield f"{name}: images at half the pixels", pixels
            frames = resized(plan, name, module, half_the_frames) if samples_frames(module) else None
            if frames:
                yield f"{name}: videos at half the frames", frames


def samples_frames(module: Vit) -> bool:
    """Whether parts of an item are frames of a video, and no tiles of an image."""
    return module.video is not None and not isinstance(module.resize, TiledResize)


def resized(plan: Plan, name: str, module: Vit, size_of: Resized) -> Plan | None:
    """The plan in which items of a tower have other sizes, and samples that read them as many tokens fewer; None where
    nothing changes, or where another encoder reads them, whose own items would be others.
    """
    uses = plan.uses
    sizes = {item: size_of(module, size) for item, size in uses.items[name].items()}
    fewer = {item: item_outputs(module, uses.items[name][item]) - item_outputs(module, sizes[item]) for item in sizes}
    if not any(fewer.values()):
        return None
    items: dict[str, dict[int, Size]] = {**uses.items, name: sizes}
    encoders = {edge.source for edge in plan.edges}
    for edge in (edge for edge in plan.edges if edge.source == name and edge.by == "tokens"):
        target = dict(items[edge.target])
        for item, readers in plan.feeds_of(edge).items():
            for reader in readers:
                size = target[reader]
                if edge.target in encoders or not isinstance(size, int) or size <= fewer[item]:
                    return None
                target[reader] = size - fewer[item]
        items[edge.target] = target
    return with_fields(plan, uses=with_fields(uses, items=items))


def half_the_pixels(module: Vit, size: Size) -> Size:
    """An item whose images have half the pixels: resized by the module's own rule where that keeps their size, half of
    the tiles where it cuts them into tiles, else half of the patches.
    """
    lengths = part_lengths(size)
    if isinstance(module.resize, TiledResize) and len(lengths) > 1:
        return patches_of(module, lengths[: (len(lengths) + 1) // 2], size)
    grids = size.grids if isinstance(size, ItemSize) else ()
    if isinstance(module.resize, SmartResize) and grids:
        halved = [half_grid(module, *grid) for grid in grids]
        return ItemSize(patches=one_or_all(tuple(h * w for h, w in halved)), grids=tuple(halved))
    return patches_of(module, tuple(half_patches(module, length) for length in lengths), None)


def half_grid(module: Vit, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of patches of an image of half the area, as its module resizes it; as they are where no image of
    the module has that size.
    """
    shorter = ImageSize(*(max(1, round(side * module.patch / sqrt(2.0))) for side in (width, height)))
    try:
        return module.image_grid(shorter) or (height, width)
    except ValueError:
        return height, width


def half_patches(module: Vit, patches: int) -> int:
    """Half of a part's patches, in whole outputs, with its class token."""
    unit, own = module.tokens_per_output, patches - module.class_tokens
    side = isqrt(unit)
    outputs = max(1, round(own / (2 * unit)))
    height, width = near_square(outputs * side * side, unit) if module.position_axes == 2 else (outputs * unit, 1)
    return height * width + module.class_tokens


def half_the_frames(module: Vit, size: Size) -> Size:
    """An item with every second of its parts."""
    lengths = part_lengths(size)
    return size if len(lengths) == 1 else patches_of(module, lengths[::2], size)


def patches_of(module: Vit, lengths: tuple[int, ...], like: Size | None) -> Size:
    """The size of an item of these parts, its grids the first of those that it had."""
    grids = like.grids[: len(lengths)] if isinstance(like, ItemSize) else ()
    return ItemSize(patches=one_or_all(lengths), grids=grids)


def one_or_all(counts: tuple[int, ...]) -> int | tuple[int, ...]:
    """A count alone as a number."""
    return counts[0] if len(counts) == 1 else counts
