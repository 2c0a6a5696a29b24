"""How a vision tower resizes images before it cuts them into patches: a rule of its model, in pixels."""

from math import ceil, sqrt
from typing import NamedTuple

from planner.specs.base import Amount, Count, Index, Spec

MAX_PIXELS = 2**24  # on a side; larger ones are a mistake


class ImageSize(NamedTuple):
    width: int  # pixels
    height: int


class SmartResize(Spec, tag_field="rule", tag="smart", kw_only=True):
    """Both sides to multiples of `patch`·`merge`, near the aspect that they have, the area within limits (Qwen2-VL,
    arXiv 2409.12191).
    """

    min_pixels: Count
    max_pixels: Count
    aspect: Amount = 200  # of the longer side over the shorter, at most


class FixedResize(Spec, tag_field="rule", tag="fixed"):
    """To one square, whatever the image (LLaVA-1.5, arXiv 2310.03744)."""

    pixels: Count  # on a side


class TiledResize(Spec, tag_field="rule", tag="tiles"):
    """To a grid of square tiles whose aspect is nearest, and, where there are several, the whole as one more tile
    (InternVL-1.5, arXiv 2404.16821). Attention stays within a tile.
    """

    pixels: Count  # on a side of a tile
    most: Count  # tiles of the grid
    thumbnail: bool = True


class CanvasResize(Spec, tag_field="rule", tag="canvas"):
    """Into the grid of square tiles that shrinks it least, or enlarges it least, without changing its aspect (Llama
    3.2 Vision). Attention goes over all tiles of an image, and the tower works on as many for each, empty ones too.
    """

    pixels: Count  # on a side of a tile
    most: Count  # tiles of the grid
    class_tokens: Index = 1  # of each tile, besides its patches
    padded: bool = True  # to the most tiles, as images of a batch are stacked; false: each has its own


Resize = SmartResize | FixedResize | TiledResize | CanvasResize


class VideoSampling(Spec, kw_only=True):
    """Frames of a video: `fps` of a second, within limits; each is resized as an image within limits of its own."""

    fps: Amount = 2
    least: Count = 4
    most: Count = 768
    min_pixels: Count
    max_pixels: Count


def image_parts(rule: Resize, size: ImageSize, patch: int, merge: int) -> tuple[int, ...]:
    """Patches of each part of an image: of the image, or of each of its tiles. Raises ValueError, as `what is wrong |
    what to do`, for a size that no image of the model has.
    """
    if min(size) < 1 or max(size) > MAX_PIXELS:
        raise ValueError(f"{shown(size)} is no size of an image | width x height in pixels, each at least 1")
    if isinstance(rule, SmartResize):
        width, height = smart_size(rule, size, patch * merge)
        return (width * height // patch**2,)
    tile_patches = (rule.pixels // patch) ** 2
    if isinstance(rule, CanvasResize):
        return ((tile_patches + rule.class_tokens) * (rule.most if rule.padded else canvas_tiles(rule, size)),)
    return (tile_patches,) * (1 if isinstance(rule, FixedResize) else tile_count(rule, size))


def part_grid(rule: Resize, size: ImageSize, patch: int, merge: int) -> tuple[int, int]:
    """Rows and columns of patches of each part of an image that has parts. Raises ValueError."""
    if isinstance(rule, SmartResize):
        width, height = smart_size(rule, size, patch * merge)
        return height // patch, width // patch
    side = rule.pixels // patch
    return side, side


def half_grid(rule: Resize, grid: tuple[int, int], patch: int, merge: int) -> tuple[int, int]:
    """Rows and columns of patches of an image that has half the area of one with this grid; the same where no image of
    the model has that size.
    """
    height, width = (max(1, round(side * patch / sqrt(2.0))) for side in grid)
    try:
        return part_grid(rule, ImageSize(width, height), patch, merge)
    except ValueError:
        return grid


def video_parts(
    sampling: VideoSampling, seconds: float, frame: ImageSize, patch: tuple[int, int, int]
) -> tuple[int, ...]:
    """Patches of each part of a video: attention stays within the frames that a patch covers.

    `patch`: pixels on a side, `merge`, frames. Raises ValueError.
    """
    side, merge, frames = patch
    patches = image_parts(frame_resize(sampling), frame, side, merge)[0]
    taken = min(max(int(sampling.fps * seconds), sampling.least), sampling.most)
    return (patches,) * max(1, taken // frames)


def frame_resize(sampling: VideoSampling) -> SmartResize:
    """The rule by which each frame of a video is resized."""
    return SmartResize(min_pixels=sampling.min_pixels, max_pixels=sampling.max_pixels)


def smart_size(rule: SmartResize, size: ImageSize, unit: int) -> ImageSize:
    """Sides after resizing, each a multiple of `unit` pixels. Raises ValueError."""
    if max(size) > rule.aspect * min(size):
        message = f"an image of {shown(size)} is over {rule.aspect:g} times as long as it is wide"
        raise ValueError(f"{message} | cut it, or leave it out")
    width, height = (round(side / unit) * unit for side in size)
    area = size.width * size.height
    if width * height > rule.max_pixels:
        shrink = sqrt(area / rule.max_pixels)
        width, height = (max(unit, int(side / shrink / unit) * unit) for side in size)
    elif width * height < rule.min_pixels:
        grow = sqrt(rule.min_pixels / area)
        width, height = (ceil(side * grow / unit) * unit for side in size)
    return ImageSize(width, height)


def tile_count(rule: TiledResize, size: ImageSize) -> int:
    """Tiles of an image, the thumbnail among them."""
    across, down = tile_grid(rule, size)
    return across * down + has_thumbnail(rule, size)


def has_thumbnail(rule: TiledResize, size: ImageSize) -> bool:
    """Whether the whole image is one more tile."""
    return rule.thumbnail and tile_grid(rule, size) != (1, 1)


def tile_grid(rule: TiledResize, size: ImageSize) -> tuple[int, int]:
    """How many tiles an image has across and down. Of grids with the same aspect the larger one is taken where the
    image has more than half of its pixels.
    """
    aspect, area = size.width / size.height, size.width * size.height
    best, off = (1, 1), abs(aspect - 1.0)
    grids = [(i, j) for i in range(1, rule.most + 1) for j in range(1, rule.most // i + 1)]
    for i, j in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        away = abs(aspect - i / j)
        if away < off or (away == off and area > 0.5 * rule.pixels**2 * i * j):
            best, off = (i, j), away
    return best


def canvas_tiles(rule: CanvasResize, size: ImageSize) -> int:
    """Tiles of the grid that an image is fitted into: of those that enlarge it the one that does so least, or, where
    all shrink it, that which does so least; of equal ones the smallest.
    """
    grids = [(i, j) for i in range(1, rule.most + 1) for j in range(1, rule.most // i + 1)]
    scales = {(i, j): min(i * rule.pixels / size.width, j * rule.pixels / size.height) for i, j in grids}
    enlarging = [scale for scale in scales.values() if scale >= 1]
    best = min(enlarging) if enlarging else max(scales.values())
    return min(i * j for (i, j), scale in scales.items() if scale == best)


def shown(size: ImageSize) -> str:
    return f"{size.width:,} x {size.height:,} pixels"
