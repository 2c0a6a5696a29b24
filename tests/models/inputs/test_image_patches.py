"""Patches are the squares of an image, those of one output side by side."""

import pytest
import torch

from planner.models.inputs.image_patches import image_patches
from planner.specs.layers import Vit


@pytest.mark.parametrize(("merge", "frames"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_patches_are_those_of_a_walk_over_the_image(merge, frames):
    spec = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, merge=merge, frames=frames, out=8)
    image = torch.randn(3, 2 * merge * 2, 2 * merge * 3)
    want = []
    for down in range(2):
        for across in range(3):
            for inner_down in range(merge):
                for inner_across in range(merge):
                    top, left = 2 * (down * merge + inner_down), 2 * (across * merge + inner_across)
                    square = image[:, top : top + 2, left : left + 2]
                    want.append(torch.stack([square] * frames, 1).flatten())
    assert torch.equal(image_patches(spec, image), torch.stack(want))


def test_frames_that_share_patches_stay_apart_within_them():
    spec = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, frames=2, out=8)
    pair = torch.randn(3, 2, 4, 4)
    got = image_patches(spec, pair).view(4, 3, 2, 2, 2)
    for frame in range(2):
        each = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, out=8)
        assert torch.equal(got[:, :, frame], image_patches(each, pair[:, frame]).view(4, 3, 2, 2))


def test_a_class_token_is_in_front():
    spec = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, out=8, class_token=True)
    plain = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, out=8)
    image = torch.randn(3, 4, 6)
    patches = image_patches(spec, image)
    assert torch.equal(patches[1:], image_patches(plain, image)) and not patches[0].any()
