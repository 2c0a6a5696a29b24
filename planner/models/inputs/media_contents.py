"""From the pixels of an image to the flattened patches that a vision tower reads, and from the mel frames of a clip to
the windows of frames that an audio encoder reads.

An image is resized by its model's rule (specs/layers/resize.py), bilinear with antialiasing, and cut into its tiles.
Patches that become one output are consecutive: blocks of merge x merge row by row, and row by row within a block (as of
Qwen2-VL, arXiv 2409.12191). A patch that covers several frames has the image in each.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.networks.audio_network import FRAMES_SEEN
from planner.specs.layers import Audio, Vit
from planner.specs.layers.audio import CONVOLUTION, FRAMES_PER_SECOND, FRAMES_PER_TOKEN
from planner.specs.layers.resize import (
    CanvasResize,
    FixedResize,
    ImageSize,
    Resize,
    SmartResize,
    has_thumbnail,
    smart_size,
    tile_grid,
)

HALF_RANGE = 127.5  # of a byte: its values become -1 to 1


def image_patches(spec: Vit, pixels: Tensor) -> Tensor:
    """Flattened patches `(patches of all tiles, channels * frames * patch * patch)` in float32 of an image `(height,
    width, channels)`: bytes from 0 to 255 become -1 to 1, floats are taken as they are.
    """
    assert spec.resize, "a model without a rule is refused before a run"
    values = pixels.float()
    image = (values / HALF_RANGE - 1 if pixels.dtype == torch.uint8 else values).permute(2, 0, 1)
    tiles = image_tiles(spec.resize, image, spec.patch * spec.merge)
    return torch.cat([flattened_patches(spec, tile) for tile in tiles])


def image_tiles(rule: Resize, image: Tensor, unit: int) -> list[Tensor]:
    """The tiles, each `(channels, height, width)`, of an image of that shape; `unit`: pixels on an output's side."""
    size = ImageSize(image.shape[2], image.shape[1])
    if isinstance(rule, SmartResize):
        return [resized(image, smart_size(rule, size, unit))]
    if isinstance(rule, FixedResize):
        return [resized(image, ImageSize(rule.pixels, rule.pixels))]
    assert not isinstance(rule, CanvasResize), "its outputs are attended to, which is refused before a run"
    side, (across, down) = rule.pixels, tile_grid(rule, size)
    whole = resized(image, ImageSize(across * side, down * side))
    tiles = [tile for strip in torch.split(whole, side, 1) for tile in torch.split(strip, side, 2)]
    return [*tiles, resized(image, ImageSize(side, side))] if has_thumbnail(rule, size) else tiles


def resized(image: Tensor, size: ImageSize) -> Tensor:
    """An image `(channels, height, width)` in another size."""
    sides = (size.height, size.width)
    return image if image.shape[1:] == sides else F.interpolate(image[None], sides, mode="bilinear", antialias=True)[0]


def flattened_patches(spec: Vit, image: Tensor) -> Tensor:
    """Patches `(patches, channels * frames * patch * patch)` of an image `(channels, height, width)`, whose sides are
    multiples of patch * merge; in front of them the unused row of a class token.
    """
    channels, height, width = image.shape
    merge, patch = spec.merge, spec.patch
    blocks = image.reshape(channels, height // (merge * patch), merge, patch, width // (merge * patch), merge, patch)
    patches = blocks.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels, 1, patch, patch)
    return F.pad(patches.expand(-1, -1, spec.frames, -1, -1).flatten(1), (0, 0, spec.class_tokens, 0))


def clip_windows(spec: Audio, frames: Tensor) -> Tensor:
    """The frames that each token of a clip sees, `(tokens, 5, mels)` in float32, of the clip's `(frames, mels)`: part
    by part, each filled up with zeros to its length.

    Windows at a part's ends see its neighbours: `frames_within_clip` takes them out.
    """
    lengths, spans = spec.clip_parts(len(frames) / FRAMES_PER_SECOND), spec.clip_spans(len(frames))
    parts = [
        F.pad(frames[first:last].float(), (0, 0, 0, length - (last - first)))
        for length, (first, last) in zip(lengths, spans, strict=True)
    ]
    before = CONVOLUTION - 1  # frames that the first token sees before its own
    padded = F.pad(torch.cat(parts), (0, 0, before, FRAMES_SEEN - FRAMES_PER_TOKEN - before))
    return padded.unfold(0, FRAMES_SEEN, FRAMES_PER_TOKEN).transpose(1, 2)
