"""Joint layouts with smaller passes, whose encoders recompute nothing: tried together, as none of it fits alone."""

from dataclasses import replace

import pytest

from planner.scoring import TriedPlan
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates
from planner.strategies.modality.joint_search import JointSearch, JointTrials
from planner.strategies.modality.smaller_passes import shrink_passes, smaller_passes
from planner.strategies.static.static_plan import micro_batch_count
from planner.units import GIB
from tests.modality_jobs import seeing_job


@pytest.fixture(scope="module")
def recomputing(tmp_path_factory):
    """A job, and joint layouts of it whose encoder recomputes everything."""
    inputs = seeing_job(tmp_path_factory.mktemp("job"))
    layouts = next(each.layouts for each in joint_candidates(JointSpace(inputs)) if each.layouts["llm"].pp == 1)
    vit = with_fields(layouts["vit"], recompute="full", ahead=0, serves=1)
    return inputs, {"vit": vit, "llm": with_fields(layouts["llm"], micro_batch=4, recompute="none")}


def search(inputs, layouts):
    done = JointSearch(JointTrials(inputs), 1, 0)
    done.simulate(layouts, "all")
    return done


def test_each_has_so_many_passes_and_recomputes_nothing_in_encoders(recomputing):
    inputs, layouts = recomputing
    tried = [*smaller_passes(search(inputs, layouts), layouts)]
    assert {each["llm"].micro_batch for each in tried} == {4, 2, 1}
    for each in tried:
        count = micro_batch_count(each["llm"], len(inputs.batches[0].items))
        vit = each["vit"]
        assert vit.recompute == "none" and vit.serves in {count, count // 2, count // 4} - {0}
        assert (vit.backward == "last") == (vit.serves == count)


def test_what_the_job_fixes_is_kept(recomputing):
    inputs, layouts = recomputing
    fixed = {"llm": Parallelism(micro_batch=4), "vit": Parallelism(recompute="full")}
    job = with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts=fixed))
    tried = [*smaller_passes(search(replace(inputs, job=job), layouts), layouts)]
    assert all(each == layouts for each in tried)


def test_the_quickest_that_fits_is_found(recomputing):
    """With any memory: no other of them is quicker by estimate, and fits."""
    inputs, layouts = recomputing
    trials = JointTrials(inputs)
    tried = [layouts, *smaller_passes(search(inputs, layouts), layouts)]
    peaks = [max(TriedPlan(trials.simulate(each, "all").plan).memory.peaks) for each in tried]
    for most in sorted({*peaks}):
        if most < peaks[0]:
            continue
        margin = 1.0 - most / (inputs.device.memory_gib * GIB) * (1 + 1e-9)
        limits = with_fields(inputs.job.limits, memory_margin=margin, oom_chance=1.0)
        done = search(replace(inputs, job=with_fields(inputs.job, limits=limits)), layouts)
        shrink_passes(done)
        fitting = [each for each, peak in zip(tried, peaks, strict=True) if peak <= most]
        assert trials.estimate(done.best.layouts) <= min(map(trials.estimate, fitting)) * (1 + 1e-9)
