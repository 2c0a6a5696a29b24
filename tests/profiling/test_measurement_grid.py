"""What is measured follows from shapes and data sheets: bounded in time and memory, and whole items only."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.models.inputs.training_items import check_batch
from planner.profiling.measurement import RECOMPUTE_KINDS
from planner.profiling.measurement_grid import (
    MAX_REPEATS,
    MIN_BATCH_SIZES,
    ExpectedCost,
    batch_mixes,
    collective_measurements,
    group_sizes,
    module_measurements,
)
from planner.specs import library
from planner.specs.hardware.profile import Profile
from planner.specs.layers import Decoder, Vit
from planner.specs.model import Model

CASES = [("tiny-decoder", "cpu", "float32"), ("tiny-vit", "cpu", "float32"), ("llama-3-8b", "h200", "bf16"),
         ("qwen2.5-vl-7b", "a100-80gb", "bf16"), ("gpt-7b", "cpu", "bf16")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("model", "device", "dtype"), CASES)
@pytest.mark.every(5)
def test_every_piece_once_and_every_batch_possible(model, device, dtype, quick):
    facts = library.read_named(device, Profile)[0].device
    for spec in library.read_named(model, Model)[0].modules.values():
        pieces = list(module_measurements("here", ExpectedCost(spec, facts, dtype), quick))
        assert len({piece.key for piece in pieces}) == len(pieces)
        assert all(1 <= piece.repeats <= MAX_REPEATS and piece.expected_s > 0 for piece in pieces)
        batches = {piece.sizes for piece in pieces if piece.kind == "layer"}
        for sizes in batches:
            check_batch(spec, list(enumerate(sizes)))
        assert len({sum(sizes) for sizes in batches}) >= MIN_BATCH_SIZES
        assert {piece.sizes for piece in pieces if piece.kind == "ends"} == {(sum(sizes),) for sizes in batches}
        assert len({len(sizes) for sizes in batches}) > 1  # else attention and the rest cannot be told apart
        rounds = {kind: Counter(p.sizes for p in pieces if p.kind == kind) for kind in ("layer", *RECOMPUTE_KINDS)}
        for how in RECOMPUTE_KINDS:
            assert rounds[how].keys() == batches
            assert all(2 <= times < rounds["layer"][sizes] / 2 for sizes, times in rounds[how].items())


@pytest.mark.slow
def test_quick_is_a_part_of_full_in_its_sizes():
    facts = library.read_named("cpu", Profile)[0].device
    spec = library.read_named("tiny-decoder", Model)[0].modules["llm"]
    quick, full = (
        {
            (piece.kind, piece.sizes)
            for piece in module_measurements("here", ExpectedCost(spec, facts, "float32"), how)
            if piece.kind != "kept"
        }
        for how in (True, False)
    )
    assert quick < full


@given(st.integers(1, 5000), st.integers(1, 512), st.integers(1, 4))
def test_mixes_hold_whole_merged_patches(total, short, merge):
    spec = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, out=8, merge=merge)
    for lengths in batch_mixes(spec, total, short):
        assert all(length > 0 and length % merge**2 == 0 for length in lengths)


def test_learned_positions_bound_documents():
    spec = Decoder(layers=1, hidden=8, heads=2, ffn=8, vocab=8, positions="learned", max_positions=300)
    facts = library.read_named("cpu", Profile)[0].device
    pieces = list(module_measurements("here", ExpectedCost(spec, facts, "float32"), True))
    assert max(max(piece.sizes) for piece in pieces if piece.kind == "layer") <= 300


@pytest.mark.parametrize("places", [50, 197, 257, 577])
def test_a_tower_for_images_of_one_size_is_measured_on_many_of_them(places):
    table = {"positions": "learned", "max_positions": places, "class_token": True}
    tower = Vit(layers=2, hidden=64, heads=4, ffn=128, patch=14, out=64, **table)
    facts = library.read_named("h100-80gb", Profile)[0].device
    pieces = list(module_measurements("here", ExpectedCost(tower, facts, "bf16"), True))
    batches = {piece.sizes for piece in pieces if piece.kind == "layer"}
    assert len({sum(sizes) for sizes in batches}) >= MIN_BATCH_SIZES and max(map(max, batches)) <= places


def test_groups_of_one_size_fill_the_ranks():
    assert [group_sizes(ranks) for ranks in (1, 2, 3, 4, 6, 8, 12)] == [
        [], [2], [3], [2, 4], [2, 6], [2, 4, 8], [2, 4, 12],
    ]  # fmt: skip
    assert list(collective_measurements("here", 1, "cpu", True)) == []
    kinds = {(piece.kind, piece.sizes[0]) for piece in collective_measurements("here", 6, "cpu", True)}
    assert kinds == {(kind, size) for kind in ("all_to_all", "all_gather", "reduce_scatter") for size in (2, 6)} | {
        ("p2p", 2)
    }
