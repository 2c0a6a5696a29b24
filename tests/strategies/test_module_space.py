"""Layouts of one module of several: with less memory they are those that a whole screening finds."""

from dataclasses import replace

import numpy as np
import pytest

from planner.layouts import screen, screen_each
from planner.specs.base import Ranks
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates
from planner.strategies.modality.module_space import (
    IN_PARTS,
    WHOLE,
    distinct_kinds,
    encoder_parts,
    encoder_space,
    encoder_spaces,
)

JOB = "qwen2.5-vl-7b-h200x8"


@pytest.fixture(scope="module")
def space() -> JointSpace:
    return JointSpace(load_job(JOB, JobOptions()))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8])
@pytest.mark.parametrize("name", ["llm", "vision"])
@pytest.mark.every(9)
def test_quickest_beside_others_is_what_all_of_them_give(space, name, share):
    able, beside = space.space(name, 8, piped=False), share * space.allowed
    narrow = replace(able.problem, beside=beside)
    whole = screen(narrow, able.screened.layouts)
    order = np.argsort(whole.seconds, kind="stable")
    order = order[whole.fits(narrow)[order]]
    wanted = whole.seconds[distinct_kinds(whole.layouts, order)][:6]
    assert [each.seconds for each in able.quickest(6, beside)] == pytest.approx(wanted.tolist())


def test_less_memory_takes_no_less_time(space):
    seconds = [space.llm(8).quickest(1, share * space.allowed)[0].seconds for share in (0.0, 0.2, 0.4, 0.6)]
    assert seconds == sorted(seconds)


def test_encoders_have_all_parts_of_their_items(space):
    sizes = space.inputs.batches[0].streams["vision"].values()
    assert len(encoder_parts(space.inputs, "vision")) == len(sizes)  # an image is one part


@pytest.mark.slow
def test_candidates_cover_every_placement_and_all_ranks(space):
    found = joint_candidates(space)
    assert {each.places["vision"] for each in found} == {"all", "first_stage", "apart"}
    for each in found:
        used = {rank for layout in each.layouts.values() for rank in layout.ranks}
        assert used == {*range(8)}
        if each.places["vision"] == "apart":
            assert not {*each.layouts["vision"].ranks} & {*each.layouts["llm"].ranks}
        if each.places["vision"] == "all":
            assert each.layouts["vision"].ranks == Ranks(range(8))
    assert found == sorted(found, key=lambda each: (each.crowded, each.seconds))


@pytest.mark.parametrize("name", ["llm", "vision"])
@pytest.mark.every(2)
def test_screens_for_several_amounts_of_memory_are_each_as_by_itself(space, name):
    able = space.space(name, 8, piped=False)
    problems = [replace(able.problem, beside=share * space.allowed) for share in (0.1, 0.5, 0.8)]
    distinct = set[float]()
    for problem, found in zip(problems, screen_each(problems, able.screened.layouts), strict=True):
        alone = screen(problem, able.screened.layouts)
        np.testing.assert_allclose(found.seconds, alone.seconds, rtol=1e-8)
        np.testing.assert_array_equal(found.bytes_needed, alone.bytes_needed)
        assert all(np.array_equal(column, alone.layouts[field]) for field, column in found.layouts.items())
        distinct.add(float(found.bytes_needed.sum()))
    assert len(distinct) > 1  # else nothing was solved for


def test_spaces_of_several_numbers_of_passes_are_those_of_each(space):
    together = encoder_spaces(space.inputs, "vision", 4, True, (WHOLE, IN_PARTS))
    for passes, found in together.items():
        alone = encoder_space(space.inputs, "vision", 4, True, passes)
        assert all(np.array_equal(column, alone.layouts[field]) for field, column in found.layouts.items())
        assert found.screened.seconds == pytest.approx(alone.screened.seconds, rel=1e-8)
