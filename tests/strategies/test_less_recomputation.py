"""Of the best joint layouts every module recomputes as little as fits beside the others."""

from dataclasses import replace

import pytest

from planner.costs.memory import allowed_bytes
from planner.scoring import TriedPlan
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates
from planner.strategies.modality.joint_search import JointSearch, JointTrials
from planner.strategies.modality.less_recomputation import lighter_layouts, recompute_less
from planner.units import GIB
from tests.modality_jobs import seeing_job

LAYERS = 4  # of the LLM


@pytest.fixture(scope="module")
def recomputing(tmp_path_factory):
    """A job, and joint layouts of it that recompute everything."""
    inputs = seeing_job(tmp_path_factory.mktemp("job"))
    layouts = next(each.layouts for each in joint_candidates(JointSpace(inputs)) if each.layouts["llm"].pp == 1)
    return inputs, {name: with_fields(layout, recompute="full") for name, layout in layouts.items()}


def searched(inputs, layouts, margin):
    """What was simulated where so much of the memory stays free."""
    limits = with_fields(inputs.job.limits, memory_margin=margin, oom_chance=1.0)
    done = JointSearch(JointTrials(replace(inputs, job=with_fields(inputs.job, limits=limits))), 1, 0)
    assert done.simulate(layouts, "all").plan
    recompute_less(done)
    return done


def peak(inputs, layouts):
    return max(TriedPlan(JointTrials(inputs).simulate(layouts, "all").plan).memory.peaks)


def test_layouts_recompute_less_and_less(recomputing):
    inputs, layouts = recomputing
    lighter = [*lighter_layouts(inputs, "llm", layouts["llm"])]
    counts = [each.recompute_counts(range(LAYERS)).get("full", 0) for each in lighter]
    assert counts == [3, 2, 1, 0]
    selective = with_fields(layouts["llm"], recompute={"0-1": "full", "2-3": "selective"})
    told = [each.recompute for each in lighter_layouts(inputs, "llm", selective)]
    assert told == [
        {0: "full", "1-3": "selective"}, "selective", {"0-2": "selective"}, {"0-1": "selective"}, {0: "selective"},
        "none",
    ]  # fmt: skip
    assert not [*lighter_layouts(inputs, "llm", with_fields(layouts["llm"], recompute="none"))]


def test_what_the_job_fixes_is_kept(recomputing):
    inputs, layouts = recomputing
    fixed = with_fields(inputs.job.fix, layouts={"llm": Parallelism(recompute="full")})
    inputs = replace(inputs, job=with_fields(inputs.job, fix=fixed))
    assert not [*lighter_layouts(inputs, "llm", layouts["llm"])]


def test_as_few_layers_recompute_as_fit(recomputing):
    inputs, layouts = recomputing
    peaks = {
        count: peak(inputs, {**layouts, "llm": each})
        for count, each in zip((3, 2, 1, 0), lighter_layouts(inputs, "llm", layouts["llm"]), strict=True)
    }
    capacity = inputs.device.memory_gib * GIB
    for fitting in (3, 2, 1, 0):
        done = searched(inputs, layouts, 1.0 - peaks[fitting] / capacity * (1.0 + 1e-9))
        best = done.best
        assert best.layouts["llm"].recompute_counts(range(LAYERS)).get("full", 0) == fitting
        assert best.seconds <= next(iter(done.tried.values())).seconds
        allowed = allowed_bytes(inputs.device, done.inputs.job.limits, inputs.accounting)
        assert max(TriedPlan(best.plan).memory.peaks) <= allowed
