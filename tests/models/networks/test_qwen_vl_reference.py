"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL have the logits of transformers', images of different sizes among the text of a
sample, by weights that it wrote: places in rows and columns, windows of images, and text that goes
on from an image's largest.
"""

import importlib
import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from planner.hf.weight_names import name_within, stored_names
from planner.models.batch import EncoderFeatures
from planner.models.build import build
from planner.models.checkpoints.hugging_face import load_checkpoint
from planner.models.inputs.media_contents import flattened_patches
from planner.models.inputs.token_places import token_places
from planner.models.sharding import EqualShard, ModuleShard
from planner.specs.parameters import model_parameters
from planner.specs.workload.items import ItemSize, TokenGrid, item_grids, output_grids, packed_documents, part_lengths
from tests.models.networks.test_multimodal_reference import MARK, TEXT, packed, saved, transformers
from tests.models.networks.test_state_space_reference import Wide

__all__ = ["transformers"]  # the fixture
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CPU = torch.device("cpu")
GRIDS = [(6, 10), (4, 4), (14, 2)]  # rows and columns of patches of three images
BETWEEN = [3, 1, 5, 4]  # tokens of text before each image, and after the last
TOWER = {"depth": 4, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_heads": 2}
TOWERS = {
    "Qwen2_5_VL": {
        "hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 20, "window_size": 16,
        "fullatt_block_indexes": [1, 3],
    },
    "Qwen2VL": {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2},
    "Qwen3VL": {
        "hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 20, "num_position_embeddings": 25,
        "deepstack_visual_indexes": [2, 1],
    },
}  # fmt: skip
SECTIONS = {  # of rotary pairs
    "Qwen3VL": {"mrope_section": [4, 2, 2], "mrope_interleaved": True, "rope_type": "default"},
}


def model_of(transformers, kind):
    sections = SECTIONS.get(kind, {"mrope_section": [1, 1, 2]})
    text = {**TEXT, "num_key_value_heads": 2, "rope_parameters": {**sections, "rope_theta": 50.0}}
    text |= {"num_hidden_layers": 3, "head_dim": 16} if kind == "Qwen3VL" else {}
    config = getattr(transformers, f"{kind}Config")(
        vision_config={**TOWER, **TOWERS[kind]}, text_config=text, image_token_id=MARK,
    )  # fmt: skip
    torch.manual_seed(3)
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def placed(spec, batch, documents, grids):
    """A batch with the places of its documents."""
    spans = [(document, (0, document.tokens)) for document in documents]
    return replace(batch, **token_places(spec, documents, spans, grids, CPU))


def seen(vision, images, size):
    """Outputs of images, the parts of one item."""
    patches = torch.cat([flattened_patches(vision.spec, image) for image in images])
    documents, lengths = packed_documents((0,), (part_lengths(size),)), part_lengths(size)
    batch = placed(vision.spec, packed(patches, lengths), documents, {0: item_grids(vision.spec, size)})
    return patches, vision(batch)


def sample(outputs, between, seed=0):
    """Token ids of text with marks for images of so many outputs, and the first mark of each."""
    ids, starts = [], []
    for count, words in zip([*outputs, 0], between, strict=True):
        drawn = torch.randint(0, MARK, (words,), generator=torch.Generator().manual_seed(seed + len(ids)))
        ids += [*drawn.tolist()]
        starts.append(len(ids))
        ids += [MARK] * count
    return torch.tensor(ids), starts[:-1]


def logits(llm, ids, features, rows, grids):
    documents = packed_documents((0,), ((len(ids),),))
    batch = placed(llm.spec, packed(ids, [len(ids)]), documents, {0: grids})
    return logits_of(llm, replace(batch, features=EncoderFeatures(rows, features)))


def logits_of(llm, batch):
    """The logits of a forward."""
    found = []
    handle = llm.norm.register_forward_hook(lambda module, args, out: found.append(out))
    llm(batch)
    handle.remove()
    return llm.logits(found[0])


@torch.no_grad()
@pytest.mark.parametrize("kind", TOWERS)
def test_images_of_different_sizes(transformers, tmp_path, kind):
    theirs, ours = saved(model_of(transformers, kind), tmp_path)
    size = ItemSize(patches=tuple(rows * columns for rows, columns in GRIDS), grids=GRIDS)
    images = [torch.randn(3, 4 * rows, 4 * columns) for rows, columns in GRIDS]
    patches, features = seen(ours.vision, images, size)
    grid_thw = torch.tensor([(1, *grid) for grid in GRIDS])
    got = theirs.model.get_image_features(pixel_values=patches, image_grid_thw=grid_thw)
    depths = [got.pooler_output, *(getattr(got, "deepstack_features", None) or ())]
    want = torch.cat([torch.cat([*each]) for each in depths], 1)
    torch.testing.assert_close(features, want, rtol=0, atol=1e-5)
    merged = output_grids(ours.vision.spec, size)
    ids, starts = sample([rows * columns for _, rows, columns in merged], BETWEEN)
    grids = [grid._replace(first=first) for grid, first in zip(merged, starts, strict=True)]
    rows = torch.cat([first + torch.arange(down * across) for first, down, across in grids])
    want = theirs(
        input_ids=ids[None], pixel_values=patches, image_grid_thw=grid_thw,
        mm_token_type_ids=(ids == MARK).int()[None],
    ).logits[0]  # fmt: skip
    torch.testing.assert_close(logits(ours.llm, ids, features, rows, grids), want, rtol=0, atol=1e-5)
    assert want.std() > 0.01
    assert model_parameters(ours.imported.model) == sum(each.numel() for each in theirs.parameters())
    assert not [note for note in ours.imported.notes if note.kind == "left out"]


def gradients_of(ours):
    """Our gradients by the names that files have, those of joined matrices one after the other."""
    found = {}
    for module in (ours.vision, ours.llm):
        for name, parameter in module.named_parameters():
            (stored,) = stored_names(name, module.spec)
            stored = re.sub(r"attn\.[qkv]\.", "attn.qkv.", stored)
            found[stored] = torch.cat([found[stored], parameter.grad]) if stored in found else parameter.grad
    return found


def test_gradients_over_three_steps(transformers, tmp_path, monkeypatch):
    """Those of Qwen3-VL, images in the text, are transformers' in float64; both take steps by their own."""
    theirs, ours = saved(model_of(transformers, "Qwen3VL"), tmp_path)
    for module in ("models.qwen3_vl.modeling_qwen3_vl", "vision_utils"):
        monkeypatch.setattr(importlib.import_module(f"transformers.{module}"), "torch", Wide())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    networks = [theirs.double(), ours.vision.double(), ours.llm.double()]
    rotary = theirs.model.language_model.rotary_emb
    rotary.inv_freq, _ = rotary.compute_default_rope_parameters(rotary.config)
    rotary = theirs.model.visual.rotary_pos_emb
    rotary.inv_freq, _ = rotary.compute_axial_rope_parameters(rotary.config)
    size = ItemSize(patches=tuple(rows * columns for rows, columns in GRIDS), grids=GRIDS)
    grid_thw, merged = torch.tensor([(1, *grid) for grid in GRIDS]), output_grids(ours.vision.spec, size)
    for step in range(3):
        images = [torch.randn(3, 4 * rows, 4 * columns, dtype=torch.float64) for rows, columns in GRIDS]
        patches, features = seen(ours.vision, images, size)
        ids, starts = sample([rows * columns for _, rows, columns in merged], BETWEEN, step)
        grids = [grid._replace(first=first) for grid, first in zip(merged, starts, strict=True)]
        rows = torch.cat([first + torch.arange(down * across) for first, down, across in grids])
        for network in networks:
            network.zero_grad()
        mine = F.cross_entropy(logits(ours.llm, ids, features, rows, grids), ids.roll(-1))
        mine.backward()
        want = theirs(
            input_ids=ids[None], pixel_values=patches, image_grid_thw=grid_thw,
            mm_token_type_ids=(ids == MARK).int()[None],
        ).logits[0]  # fmt: skip
        loss = F.cross_entropy(want, ids.roll(-1))
        loss.backward()
        torch.testing.assert_close(mine, loss, rtol=1e-11, atol=0)
        found, wanted = gradients_of(ours), {name_within(name): each.grad for name, each in theirs.named_parameters()}
        floor = 1e-3 * max(each.norm() for each in wanted.values())
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            error = (found[name].view_as(gradient) - gradient).norm()
            assert error <= 1e-10 * max(gradient.norm(), floor), name
        with torch.no_grad():
            for network in networks:
                for parameter in network.parameters():
                    parameter.sub_(0.1 * parameter.grad)


@torch.no_grad()
@pytest.mark.parametrize("kind", TOWERS)
def test_a_rank_of_two_has_its_heads_of_joined_weights(transformers, tmp_path, kind):
    _, ours = saved(model_of(transformers, kind), tmp_path)
    shard = build(ours.vision.spec, shard=ModuleShard(tp=EqualShard(1, 2)))
    load_checkpoint(shard, shard.spec, tmp_path)
    whole, half = (network.layers["2"].attention for network in (ours.vision, shard))
    for name in ("query", "key", "value"):
        for mine, theirs in zip(getattr(half, name).parameters(), getattr(whole, name).parameters(), strict=True):
            assert torch.equal(mine, theirs[8:])


@torch.no_grad()
def test_places_matter(transformers, tmp_path):
    _, ours = saved(model_of(transformers, "Qwen2_5_VL"), tmp_path)
    image, sizes = torch.randn(3, 24, 40), [ItemSize(patches=60, grids=(grid,)) for grid in ((6, 10), (10, 6))]
    (_, upright), (_, turned) = (seen(ours.vision, [image], size) for size in sizes)
    assert (upright - turned).abs().max() > 1e-3
    ids, words = torch.arange(30), torch.zeros(0, dtype=torch.int64)
    x = torch.zeros(0, 32)
    plain = logits(ours.llm, ids, x, words, [])
    seen_there = logits(ours.llm, ids, x, words, [TokenGrid(4, 3, 5)])
    torch.testing.assert_close(seen_there[:5], plain[:5], rtol=0, atol=1e-6)
    assert (seen_there[5:] - plain[5:]).abs().max() > 1e-3
