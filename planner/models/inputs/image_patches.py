"""The patches of an image, in the order in which a vision tower works on them."""

import torch.nn.functional as F
from torch import Tensor

from planner.specs.layers import Vit


def image_patches(spec: Vit, image: Tensor) -> Tensor:
    """Flattened patches `(tokens, channels * frames * patch * patch)` of an image `(channels, height, width)`, or of
    frames `(channels, frames, height, width)` that share patches; sides are multiples of `patch * merge`.

    The merge x merge patches of one output are consecutive, row by row; these squares follow each other row by row. A
    class token's row is in front, and is not used. One image is repeated for each frame of a patch.
    """
    frames = image[:, None].expand(-1, spec.frames, -1, -1) if image.dim() == 3 else image
    channels, count, height, width = frames.shape
    side, merge = spec.patch, spec.merge
    down, across = height // (side * merge), width // (side * merge)
    squares = frames.reshape(channels, count, down, merge, side, across, merge, side)
    patches = squares.permute(2, 5, 3, 6, 0, 1, 4, 7).reshape(down * across * merge**2, channels * count * side**2)
    return F.pad(patches, (0, 0, spec.class_tokens, 0))
