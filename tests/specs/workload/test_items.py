"""Sizes of items: read and written as they are said, and refused where no module could have them."""

from math import isqrt

import msgspec
import pytest

from planner import files
from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Edge, Group, Layout, Plan, Step
from planner.specs.base import Ranks, with_fields
from planner.specs.layers import Audio, Decoder, Vit
from planner.specs.layers.resize import FixedResize, ImageSize
from planner.specs.model import ModelEdge, edge_fault
from planner.specs.workload.items import (
    Document,
    ItemSize,
    TokenGrid,
    item_grids,
    item_outputs,
    item_tokens,
    near_square,
    output_grids,
    packed_documents,
    part_lengths,
    size_faults,
)
from tests.plans import plan_of, uses

LLM = Decoder(layers=2, hidden=32, heads=4, ffn=48, vocab=64)
VIT = Vit(layers=2, hidden=16, heads=4, ffn=24, patch=2, merge=2, out=32)
EAR = Audio(layers=2, hidden=16, heads=4, ffn=24, mels=4, pool=2, out=32)
SIZES = {
    "llm": {0: 40, 1: ItemSize(tokens=30)},
    "vit": {0: 16, 1: ItemSize(patches=(24, 8))},
    "ear": {5: ItemSize(frames=12)},
}


def plan_with(**sizes) -> Plan:
    """A decoder that reads a vision tower and an ear, all on one rank."""
    items = {**SIZES, **sizes}
    facts = uses(1, {"llm": LLM, "vit": VIT, "ear": EAR}, items, {"vit": dict.fromkeys(items["vit"], 0), "ear": {5: 1}})
    layout = Layout(ranks=Ranks((0,)))
    row = {name: {"all": tuple(of_module)} for name, of_module in items.items()}
    step = Step(sync="step", micro_batches=(row,))
    edges = (Edge(source="vit", target="llm"), Edge(source="ear", target="llm"))
    return plan_of(1, facts, dict.fromkeys(items, layout), {"all": Group(ranks=Ranks((0,)))}, step, edges)


def test_a_plan_says_sizes_as_they_were_said(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(files.dump(plan_with()))
    read = files.read(path, Plan)
    assert read.uses.items == SIZES
    assert files.dump(read) == path.read_text()
    assert "vit: {0: 16, 1: {patches: [24, 8]}}" in path.read_text()
    assert not violations(read)


def test_parts_are_the_item():
    assert [item_tokens(size) for size in (7, ItemSize(tokens=7), ItemSize(patches=(3, 4)), ItemSize(frames=14))] == [
        7
    ] * 4
    assert part_lengths(ItemSize(frames=(8, 4))) == (4, 2)
    assert packed_documents((3, 5), ((4, 2), (6,))) == (Document(3, 4, 0), Document(3, 2, 4), Document(5, 6, 0))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"patches": [4], "frames": 2}, "in one unit"),
        ({}, "in one unit, not none"),
        ({"frames": [4, 3]}, "3 frames are no whole tokens"),
        ({"patches": [24, 8], "grids": [[6, 4]]}, "grids of 6 x 4 are not the item's patches"),
        ({"patches": [24, 8], "grids": [[6, 4], [3, 3]]}, r"grids of 6 x 4 \+ 3 x 3 are not the item's patches"),
        ({"frames": [4, 2], "grids": [[2, 2], [2, 1]]}, "are not the item's frames"),
    ],
)
def test_what_is_no_size(said, message, tmp_path):
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(said, ItemSize)
    path = tmp_path / "plan.yaml"
    path.write_text(files.dump(plan_with()).replace("{patches: [24, 8]}", str(said).replace("'", "")))
    with pytest.raises(InputError, match=message) as error:
        files.read(path, Plan)
    assert "uses.items.vit" in str(error.value.where) and error.value.fix


@pytest.mark.parametrize(
    ("module", "size", "message"),
    [
        ("vit", ItemSize(frames=16), "in frames, and `vit` reads patches"),
        ("llm", ItemSize(patches=16), "in patches, and `llm` reads tokens"),
        ("vit", ItemSize(patches=(16, 6)), "6 tokens are no whole outputs"),
        ("ear", ItemSize(frames=6), "3 tokens are no whole outputs"),
    ],
)
def test_sizes_that_a_module_cannot_have(module, size, message):
    plan = plan_with()
    item = max(plan.uses.items[module])
    sizes = {**plan.uses.items, module: {**plan.uses.items[module], item: size}}
    (wrong,) = violations(with_fields(plan, uses=with_fields(plan.uses, items=sizes)))
    assert message in wrong.message and wrong.where == f"uses.items.{module}.{item}"


ROWS = with_fields(VIT, positions="rope_2d")


def test_grids_are_of_parts_and_their_outputs():
    size = ItemSize(patches=(24, 8), grids=((6, 4), (2, 4)))
    assert item_grids(ROWS, size) == (TokenGrid(0, 6, 4), TokenGrid(24, 2, 4))
    assert output_grids(ROWS, size) == (TokenGrid(0, 3, 2), TokenGrid(6, 1, 2))
    assert item_grids(ROWS, 24) == (TokenGrid(0, 4, 6),)
    assert item_grids(VIT, 24) == output_grids(VIT, 24) == ()
    assert not [*size_faults(ROWS, "vit", size)]
    assert [*size_faults(VIT, "vit", size)] == 2 * [("patches of `vit` have no rows and columns", "leave out grids")]
    (fault,) = size_faults(ROWS, "vit", ItemSize(patches=24, grids=((8, 3),)))
    assert fault[0] == "8 x 3 patches are no whole outputs: 2 x 2 become one"


@pytest.mark.parametrize("unit", [1, 4, 9])
def test_no_grid_is_nearer_to_a_square(unit):
    side = isqrt(unit)
    for squares in range(1, 80):
        every = [(rows * side, squares // rows * side) for rows in range(1, squares + 1) if squares % rows == 0]
        found = near_square(squares * unit, unit)
        assert found in every and abs(found[1] - found[0]) == min(abs(columns - rows) for rows, columns in every)
    assert near_square(0, unit) == (0, 0)


def test_a_class_token_is_a_patch_of_each_part_and_no_output():
    tower = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=14, out=8, class_token=True, resize=FixedResize(pixels=336))
    assert tower.image_parts(ImageSize(1280, 960)) == (577,)
    assert item_outputs(tower, 577) == 576
    assert item_outputs(tower, ItemSize(patches=(577, 10))) == 576 + 9
    assert [message for message, _ in size_faults(tower, "vit", ItemSize(patches=(577, 1)))] == [
        "a part of 1 tokens is a class token and no output"
    ]
    reader = Decoder(layers=1, hidden=8, heads=2, ffn=8, vocab=9)
    edge = ModelEdge(source="a", target="b")
    first = with_fields(tower, class_token=False)
    assert not edge_fault(edge, tower, reader) and not edge_fault(edge, first, first)
    assert edge_fault(edge, first, tower).startswith("outputs of `a` would take the place of `b`'s class token")
    with pytest.raises(ValueError, match="no part of merged outputs"):
        Vit(layers=1, hidden=8, heads=2, ffn=8, patch=14, merge=2, out=8, class_token=True)
    with pytest.raises(ValueError, match="have a table"):
        Vit(layers=1, hidden=8, heads=2, ffn=8, patch=14, out=8, positions="learned")
