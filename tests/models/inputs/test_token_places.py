"""Places of patches and of text are those that a walk over them finds, and windows are squares of an image."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.models.inputs.media_contents import flattened_patches
from planner.models.inputs.token_places import document_places, grid_windows, patch_places, text_places
from planner.models.inputs.training_items import PlannedItems, SyntheticSamples, batch_of_documents, synthetic_batch
from planner.models.kernels import blockwise_attention, packed_attention
from planner.models.kernels.attention_tiles import Masking
from planner.models.kernels.blockwise import LocalBlocks
from planner.models.kernels.rotary_positions import patch_table, rotary_table, section_axes, sectioned_table
from planner.specs.layers import Decoder, Vit
from planner.specs.workload.items import Document, TokenGrid
from tests.examples import examples
from tests.models.kernels.test_attention import assert_same, leaves

CPU = torch.device("cpu")
TOWER = Vit(layers=2, hidden=16, heads=4, ffn=8, patch=2, merge=2, out=6, positions="rope_2d", window=16,
            full_layers=(1,), channels=2)  # fmt: skip
TEXT = Decoder(layers=1, hidden=32, heads=4, ffn=8, vocab=9, rope_sections=(1, 1, 2))


@examples(30)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_patches_are_where_their_pixels_are(down, across, merge):
    """An image whose pixels say their row and column becomes patches that say the same."""
    rows, columns = down * merge, across * merge
    image = torch.stack(
        [torch.arange(rows)[:, None].expand(rows, columns), torch.arange(columns).expand(rows, columns)]
    )
    spec = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=1, merge=merge, out=3, channels=2)
    assert torch.equal(patch_places(rows, columns, merge), flattened_patches(spec, image))


def walked(tokens, grids):
    """Token by token: text counts on by one; an image counts from where it stands, text goes on from its largest."""
    starts, found = {first: (rows, columns) for first, rows, columns in grids}, []
    while len(found) < tokens:
        on = 1 + max((max(place) for place in found), default=-1)
        rows, columns = starts.get(len(found), (0, 0))
        found += [(on, on + row, on + column) for row in range(rows) for column in range(columns)] or [(on,) * 3]
    return found


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4)), max_size=4), st.integers(0, 5))
def test_text_goes_on_from_an_images_largest(images, after):
    grids, at = [], 0
    for before, rows, columns in images:
        grids.append(TokenGrid(at + before, rows, columns))
        at += before + rows * columns
    places = text_places(at + after, grids)
    assert [tuple(each) for each in places.tolist()] == walked(at + after, grids)


def test_text_alone_has_one_position():
    """Rotary sections of text rotate it as one axis does."""
    places = document_places(TEXT, Document(0, 9), ())
    one = rotary_table(torch.arange(9), 8, torch.float64, 50.0)
    for mine, plain in zip(
        sectioned_table(places, section_axes((1, 1, 2), False), torch.float64, 50.0), one, strict=True
    ):
        assert torch.equal(mine, plain)


def test_scores_of_patches_depend_on_the_way_between_them():
    """By rows and by columns: a score is the same wherever two patches with this way between them are."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 8, dtype=torch.float64)
    cos, sin = patch_table(torch.tensor([(2, 3), (4, 8), (7, 1), (9, 6), (2, 8)]), 8, torch.float64)

    def score(query, key):
        turned = [
            torch.cat([x[:4] * cos[at, 0] - x[4:] * sin[at, 0], x[4:] * cos[at, 0] + x[:4] * sin[at, 0]])
            for x, at in ((q, query), (k, key))
        ]
        return float(turned[0] @ turned[1])

    assert score(0, 1) == pytest.approx(score(2, 3), abs=1e-12)
    assert abs(score(0, 1) - score(0, 4)) > 1e-3


GRIDS = [(6, 10), (4, 4), (2, 6)]


def windows_of(grids=GRIDS, side=4):
    return grid_windows([patch_places(*grid, 2) for grid in grids], side, CPU)


def by_definition(q, k, v, side=4):
    """softmax(q k' / sqrt(D)) v over the patches of the same image, row of windows and column of windows."""
    places = torch.cat([patch_places(*grid, 2) for grid in GRIDS])
    image = torch.repeat_interleave(torch.tensor([rows * columns for rows, columns in GRIDS]))
    window = torch.cat([image[:, None], places // side], 1)
    seen = (window[:, None] == window).all(2)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize("side", [2, 4, 6])
def test_windows_are_squares_of_an_image(side):
    inputs = leaves(4, tokens=88)
    masking, ends = Masking(causal=False, grid=windows_of(side=side)), torch.tensor([0, 60, 76, 88]).int()
    assert_same(packed_attention(*inputs, ends, masking), by_definition(*inputs, side), inputs)
    blocks = LocalBlocks([(image, 0, rows * columns) for image, (rows, columns) in enumerate(GRIDS)])
    assert_same(blockwise_attention(*inputs, blocks, masking), by_definition(*inputs, side), inputs)


def test_a_document_is_a_part_of_an_item():
    grids = [TokenGrid(0, 2, 4), TokenGrid(8, 6, 2)]
    assert torch.equal(document_places(TOWER, Document(0, 8, 0), grids), patch_places(2, 4, 2))
    assert torch.equal(document_places(TOWER, Document(0, 12, 8), grids), patch_places(6, 2, 2))
    assert torch.equal(document_places(TOWER, Document(0, 24, 0), ()), patch_places(4, 6, 2))


def test_batches_have_what_their_module_needs():
    documents, grids = [(3, 60), (5, 16)], {3: [TokenGrid(0, 6, 10)], 5: [TokenGrid(0, 4, 4)]}
    batch = batch_of_documents(SyntheticSamples(0), TOWER, documents, planned=PlannedItems(grids=grids))
    assert torch.equal(batch.places, torch.cat([patch_places(6, 10, 2), patch_places(4, 4, 2)]))
    assert batch.windows.cu_seqlens.tolist() == [0, 16, 32, 40, 48, 56, 60, 76]
    plain = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, merge=2, out=6, window=16)
    assert synthetic_batch(plain, documents, 0).places is None and synthetic_batch(plain, documents, 0).windows is None
    idle = synthetic_batch(TOWER, [], 0)
    assert idle.places.shape == (0, 2) and len(idle.windows.order) == 0
