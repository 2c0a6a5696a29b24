"""Patches of an image are its pixels in the order that the tower merges, tiles in the order of its rule."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.models.inputs.media_contents import image_patches, image_tiles
from planner.specs.layers import Vit
from planner.specs.layers.resize import FixedResize, ImageSize, SmartResize, TiledResize
from tests.examples import examples

ANY_SIZE = SmartResize(min_pixels=1, max_pixels=10**6)


def tower(patch, merge, rule, frames=1, channels=3):
    shape = {"layers": 1, "hidden": 8, "heads": 2, "ffn": 8, "out": 3}
    return Vit(**shape, patch=patch, merge=merge, resize=rule, frames=frames, channels=channels)


def by_hand(spec, image):
    """Patches one by one: blocks row by row, within each its patches row by row, each channel, frame, row, column."""
    height, width, channels = image.shape
    merge, patch, found = spec.merge, spec.patch, []
    for row in range(0, height, merge * patch):
        for column in range(0, width, merge * patch):
            for top in range(row, row + merge * patch, patch):
                for left in range(column, column + merge * patch, patch):
                    pixels = [
                        float(image[top + y, left + x, channel])
                        for channel in range(channels)
                        for _ in range(spec.frames)
                        for y in range(patch)
                        for x in range(patch)
                    ]
                    found.append(pixels)
    return torch.tensor(found)


@examples(30)
@given(*[st.integers(1, 3)] * 4, st.integers(1, 2), st.integers(1, 3))
def test_an_image_that_fits_is_cut_as_it_is(rows, columns, merge, patch, frames, channels):
    spec = tower(patch, merge, ANY_SIZE, frames, channels)
    image = torch.rand(rows * merge * patch, columns * merge * patch, channels)
    assert torch.equal(image_patches(spec, image), by_hand(spec, image))


@examples(30)
@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([ANY_SIZE, FixedResize(8), TiledResize(8, 5)]))
def test_there_are_as_many_patches_as_are_planned(height, width, rule):
    spec = tower(2, 2, rule)
    found = image_patches(spec, torch.rand(height, width, 3))
    assert found.shape == (sum(spec.image_parts(ImageSize(width, height))), 3 * 2 * 2)


def test_bytes_become_numbers_between_minus_one_and_one():
    spec = tower(1, 1, ANY_SIZE, channels=1)
    assert image_patches(spec, torch.tensor([[[0]], [[255]], [[51]]], dtype=torch.uint8)).flatten().tolist() == (
        pytest.approx([-1.0, 1.0, -0.6])
    )


@pytest.mark.parametrize("rule", [ANY_SIZE, FixedResize(8), TiledResize(8, 5)])
def test_an_even_image_stays_even_in_any_size(rule):
    """Resizing is an average of pixels: of one colour nothing else can come."""
    colour = torch.tensor([0.25, -0.5, 1.0])
    found = image_patches(tower(2, 2, rule), colour.expand(13, 21, 3))
    torch.testing.assert_close(found.unflatten(1, (3, 4)), colour[:, None].expand(len(found), 3, 4))


def test_tiles_are_row_by_row_and_the_whole_comes_last():
    """An image twice as wide as high, whose tiles differ in colour."""
    image = torch.zeros(1, 16, 32)
    for at, (row, column) in enumerate((row, column) for row in range(2) for column in range(4)):
        image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = at
    tiles = image_tiles(TiledResize(8, 8), image, 4)
    assert [float(tile.mean()) for tile in tiles] == pytest.approx([*range(8), 3.5])
    assert [float(tile.std()) for tile in tiles[:8]] == [0.0] * 8
    assert len(image_tiles(TiledResize(8, 8, thumbnail=False), image, 4)) == 8
