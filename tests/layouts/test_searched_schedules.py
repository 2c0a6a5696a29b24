"""Zero bubble is searched where the framework has it: what it gains in seconds, it takes in memory."""

from dataclasses import replace

import numpy as np
import pytest

from planner.layouts.bounds.space_bound import layout_bounds, space_bound
from planner.layouts.screening.layout_screening import screen
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import SCHEDULE, SCHEDULES
from planner.layouts.space.layout_problem import layout_problem
from planner.plan.legal.plan_laws import violations
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.strategies import parallel_search
from tests.static_jobs import small_cluster, static_inputs

PLAIN, SPLIT = Knobs(schedules=("interleaved",)), Knobs(schedules=("interleaved", "zb_h1", "zb_h2"))


@pytest.fixture
def made(tmp_path):
    def write(fixed="", knobs=SPLIT, kind="h200"):
        cluster = small_cluster(tmp_path, kind, 8)
        inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [4096] * 32, fixed)
        job = with_fields(inputs.job, within=0.0)  # the quickest
        return replace(inputs, job=job, software=with_fields(inputs.software, knobs=knobs))

    return write


def space_of(inputs):
    problem = layout_problem(inputs)
    return problem, layouts_of(problem, problem.trained.fixed)


def places_of(found):
    names = [name for name in found if name != SCHEDULE]
    return {fields: place for place, fields in enumerate(zip(*(found[name].tolist() for name in names), strict=True))}


def test_each_pipeline_that_recomputes_nothing_is_tried_with_split_backwards_too(made):
    """Those without zero bubble are the space without it; each other is one of them in another schedule."""
    _, plain = space_of(made(knobs=PLAIN))
    _, found = space_of(made())
    usual = {name: column[found[SCHEDULE] == 0] for name, column in found.items()}
    assert all((usual[name] == plain[name]).all() for name in plain)
    able = (plain["pp"] > 1) & (plain["vpp"] == 1) & (plain["recompute"] == 0)
    for schedule in ("zb_h1", "zb_h2"):
        split = found[SCHEDULE] == SCHEDULES.index(schedule)
        assert all((found[name][split] == plain[name][able]).all() for name in plain if name != SCHEDULE)
    assert len(found["tp"]) <= 1.5 * len(plain["tp"])


def test_split_backwards_take_less_time_and_no_less_memory(made):
    problem, found = space_of(made())
    screened = screen(problem, found)
    plain, split = (found[SCHEDULE] == SCHEDULES.index(name) for name in ("1f1b", "zb_h1"))
    usual = places_of({name: column[plain] for name, column in found.items()})
    again = places_of({name: column[split] for name, column in found.items()})
    pairs = np.array([(usual[fields], place) for fields, place in again.items()])
    seconds, needed = ([column[plain], column[split]] for column in (screened.seconds, screened.bytes_needed))
    none = screened.layouts["full_layers"][plain][pairs[:, 0]] == 0
    assert (seconds[1][pairs[:, 1]] <= seconds[0][pairs[:, 0]] * (1 + 1e-8))[none].all()
    assert (needed[1][pairs[:, 1]] >= needed[0][pairs[:, 0]] * (1 - 1e-12))[none].all()
    assert not screened.layouts["full_layers"][split].any()


@pytest.mark.slow
def test_the_plan_has_it_where_it_is_quicker_and_fits(made):
    fixed = "tp: 2, pp: 4, zero: 1, micro_batch: 1, vpp: 1"
    plan, plain = (parallel_search.plan(made(fixed, knobs), None) for knobs in (SPLIT, PLAIN))
    layout = plan.layouts["llm"]
    assert layout.schedule in ("zb_h1", "zb_h2") and layout.recompute == "none" and violations(plan) == []
    assert plan.outcome.bound <= plan.outcome.value < plain.outcome.value
    small = made(fixed, SPLIT, "h100-80gb")
    tight = replace(small, job=with_fields(small.job, limits=with_fields(small.job.limits, memory_margin=0.7)))
    assert parallel_search.plan(tight, None).layouts["llm"].schedule == "1f1b"


def test_the_bound_is_over_both(made):
    fixed = "tp: 2, pp: 4, zero: 1, micro_batch: 1, vpp: 1"
    spaces = (space_of(made(fixed, knobs)) for knobs in (SPLIT, PLAIN))
    both, plain = (space_bound(problem, layout_bounds(problem, found)) for problem, found in spaces)
    assert both.seconds <= plain.seconds
