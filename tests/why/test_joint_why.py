"""`why` of plans of several modules: what it lists goes into `why-not` and gives the same, other data keep every text
token and every place, and groups of a module are compared with those of no other.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pipeline
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.scoring import score, step_seconds
from planner.specs.layers import Vit
from planner.specs.layers.resize import SmartResize, TiledResize, VideoSampling
from planner.specs.workload.items import ItemSize, item_outputs, item_tokens, part_lengths, size_faults
from planner.why import ModuleFacts, WhyGroup
from planner.why.kept_decisions import other_data, other_size
from planner.why.plan_problem import single_step
from tests.examples import examples, soaked
from tests.placed_jobs import FEW, PLACEMENTS

SHAPE = {"layers": 2, "hidden": 16, "heads": 4, "ffn": 32, "out": 32}


@pytest.mark.slow
@pytest.mark.parametrize("name", soaked(PLACEMENTS, ["1 + 3"]))
@pytest.mark.every(2)
def test_placements_that_are_listed_go_into_why_not(placed, name):
    plan = placed(name)
    answer = pipeline.why(plan)
    assert isinstance(answer.facts, ModuleFacts) and not answer.unplaced
    assert answer.again == answer.facts.value
    assert answer.placements
    for each in answer.placements:
        other = pipeline.why_not(plan, each.changes)
        assert isinstance(other.before, ModuleFacts)
        assert each.gain.seconds == (other.after.value if other.after else None)
        assert bool(each.gain.because) == (other.after is None)
        assert other.after is None or other.after.layouts != other.before.layouts


@pytest.mark.slow
@FEW
@pytest.mark.every(2)
def test_other_data_keep_text_and_places(placed, name):
    """Tokens of samples are fewer by the outputs that they no longer read, and by nothing else; the plan is legal."""
    plan = placed(name)
    answer = pipeline.why(plan)
    assert isinstance(answer.facts, ModuleFacts)
    found = dict(other_data(plan))
    assert [*found] == ["vit: images at half the pixels"] == [gain.what for gain in answer.data]
    for gain, other in zip(answer.data, found.values(), strict=True):
        assert not violations(other)
        assert other.steps == plan.steps and other.layouts == plan.layouts
        assert text_tokens(other) == text_tokens(plan)
        assert gain.seconds == step_seconds(other)


def text_tokens(plan: Plan) -> dict[int, int]:
    """Tokens of each sample that are no outputs of encoders."""
    left = {sample: plan.uses.tokens("llm", sample) for sample in plan.uses.items["llm"]}
    for edge in plan.edges:
        for item, readers in plan.feeds_of(edge).items():
            for reader in readers:
                left[reader] -= item_outputs(plan.uses.models[edge.source], plan.uses.items[edge.source][item])
    return left


sides = st.integers(1, 40)


@given(sides, sides)
@examples(100)
def test_half_the_pixels_by_the_rule_of_the_module(height, width):
    """Rows and columns shrink alike, to the nearest whole outputs after pixels were rounded: half a pixel is 1/28."""
    tower = Vit(**SHAPE, patch=14, merge=2, positions="rope_2d", resize=SmartResize(min_pixels=784, max_pixels=10**7))
    size = ItemSize(patches=4 * height * width, grids=((2 * height, 2 * width),))
    half = other_size(size, tower.half_images)
    assert isinstance(half, ItemSize) and not [*size_faults(tower, "vit", half)]
    ((rows, columns),) = half.grids
    assert abs(rows / 2 - height / 2**0.5) <= 0.5 + 1 / 28 or rows == 2
    assert abs(columns / 2 - width / 2**0.5) <= 0.5 + 1 / 28 or columns == 2


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.booleans())
@examples(100)
def test_half_of_what_has_no_grid_is_in_whole_outputs(outputs, classed):
    tower = Vit(**SHAPE, patch=14, merge=1 if classed else 2, class_token=classed)
    unit = tower.tokens_per_output
    size = ItemSize(patches=tuple(unit * count + classed for count in outputs))
    half = other_size(size, tower.half_images)
    assert not [*size_faults(tower, "vit", half)]
    for before, after in zip(part_lengths(size), part_lengths(half), strict=True):
        assert abs((after - classed) - (before - classed) / 2) <= unit / 2 or after == unit + classed


@given(st.integers(1, 30))
def test_half_of_tiles_and_half_of_frames_are_parts_that_were_there(count):
    tiles = Vit(**SHAPE, patch=14, merge=2, resize=TiledResize(pixels=448, most=12))
    frames = Vit(**SHAPE, patch=14, merge=2, frames=2, video=VideoSampling(min_pixels=784, max_pixels=10**6))
    size = ItemSize(patches=(64,) * count)
    for found in (other_size(size, tiles.half_images) if count > 1 else None, other_size(size, frames.half_frames)):
        assert found is None or part_lengths(found) == (64,) * ((count + 1) // 2)
    assert item_tokens(other_size(64, frames.half_frames)) == 64


@pytest.mark.slow
@FEW
@pytest.mark.every(2)
def test_a_group_of_several_modules_says_its_own_items(placed, name):
    plan = placed(name)
    busy = score(plan).timeline.module_seconds()
    for group in single_step(plan, 0).groups:  # those without items have no work
        answer = pipeline.why(plan, group)
        assert isinstance(answer, WhyGroup)
        for load in answer.loads:
            assert load.seconds == busy[load.module, load.micro_batch, group]
            assert {*load.items} <= {*answer.sizes[load.module]} and load.module == group.partition(".")[0]
            assert load.tokens == sum(answer.sizes[load.module][item] for item in load.items)
            if load.waits_for and not load.waits_for.startswith("rank"):
                assert load.waits_for.partition(".")[0] == load.module
