"""The bound over a space: below the simulated step of each of its layouts, of which none that fits is left out."""

import random

import numpy as np
import pytest

from planner.errors import Infeasible
from planner.layouts.bounds.space_bound import layout_bounds, space_bound
from planner.layouts.bounds.split_bound import least_divided
from planner.layouts.screening.layout_screening import screen
from planner.layouts.screening.searched_parts import with_searched_parts
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.scoring import false_statements, score, with_score
from planner.specs.base import with_fields
from planner.strategies import parallel_search
from planner.strategies.one_module.simulated_layouts import simulate_layout
from tests.examples import thorough
from tests.static_jobs import small_cluster, static_inputs

VARIED = [300, 9000, 512, 700, 4096, 1000, 2048, 600, 333, 8192, 64, 1500, 2500, 700, 128, 4000]
MOST_PASSES = 200  # of a replica on all its stages: larger ones take the same form, and longer


SOAK = pytest.mark.soak
JOBS = [
    ("llama-3-8b", 8, [8192] * 16, ""),
    ("llama-3-8b", 24, [4096] * 48, ""),
    ("llama-3-8b", 48, [2048] * 96, "pp: 6"),
    ("llama-3-8b", 8, VARIED, ""),
    ("llama-3-8b", 32, VARIED * 4, ""),
    ("llama-3-8b", 8, [8192] * 16, "schedule: gpipe, zero: 3"),
    ("llama-3-8b", 8, VARIED, "schedule: gpipe"),
    ("llama-3-8b", 8, [4096] * 32, "schedule: zb_h1"),
    ("llama-3-8b", 16, [1024] * 32, "schedule: zb_h2"),
    ("llama-3-8b", 64, [2048] * 128, "schedule: zb_h1, pp: 16, tp: 1, cp: 1"),
    ("llama-3-8b", 16, [8192] * 32, "zero: 3, pp: 4"),
    pytest.param("llama-3-8b", 16, VARIED * 2, "zero: 3, pp: 4", marks=SOAK),
    ("llama-3-8b", 32, [4096] * 64, "zero: 2"),
    ("llama-3-8b", 32, [4096] * 64, "replica: 4, zero: 3"),
    ("qwen3-30b-a3b", 16, [4096] * 32, ""),
    pytest.param("qwen3-30b-a3b", 16, VARIED, "zero: 3", marks=SOAK),
    pytest.param("gpt-oss-20b", 8, VARIED, "", marks=SOAK),
    pytest.param("gpt-oss-20b", 16, VARIED * 2, "zero: 3", marks=SOAK),
    ("deepseek-v2-lite", 16, [4096] * 32, ""),
    ("nemotron-h-8b", 16, [4096] * 32, ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ranks", "sizes", "fixed"), JOBS)
@pytest.mark.every(8)
def test_no_layout_is_quicker_than_its_bound(tmp_path, model, ranks, sizes, fixed):
    """Of layouts that may fit, whether they are screened as fitting or not; and those out of the space do not fit."""
    inputs = static_inputs(tmp_path, model, small_cluster(tmp_path, "h100-80gb", ranks), sizes, fixed)
    problem = layout_problem(inputs)
    found = layouts_of(problem, fixed_fields(inputs))
    screened, (least, needed) = screen(problem, found), layout_bounds(problem, found)
    assert (needed[screened.fits(problem)] <= problem.allowed).all()
    tried = 0
    for place in random.Random(model + fixed).sample(range(len(least)), min(len(least), 60 if thorough() else 30)):
        layout = layout_at(problem.trained, screened.layouts, int(place))
        if layout.pp * layout.vpp * len(sizes) > MOST_PASSES * layout.dp * layout.replica * layout.micro_batch:
            continue
        found_plan = simulate_layout(inputs, layout)
        if needed[place] <= problem.allowed:
            assert least[place] <= found_plan.seconds * (1 + 1e-8), layout
            tried += 1
        elif tried % 4 == 0:
            with pytest.raises(Infeasible):
                with_score(found_plan.plan, "")
    assert tried >= 10


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_of_equal_sequences_without_a_pipeline_the_bound_is_the_step(tmp_path, zero):
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [4096] * 16, f"zero: {zero}, pp: 1, tp: 2, cp: 1")
    problem = layout_problem(inputs)
    found = layouts_of(problem, fixed_fields(inputs))
    screened, (least, _) = screen(problem, found), layout_bounds(problem, found)
    whole = screened.layouts["full_layers"] == 0  # others have the bound of any parts that they could recompute instead
    for place in np.nonzero(screened.fits(problem) & whole)[0]:
        layout = layout_at(problem.trained, screened.layouts, int(place))
        assert least[place] == pytest.approx(simulate_layout(inputs, layout).seconds, rel=2e-3)


@pytest.mark.slow
def test_a_plan_says_the_bound_over_its_space(tmp_path):
    inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [8192] * 16)
    problem, plan = layout_problem(inputs), parallel_search.plan(inputs, None)
    layouts = layouts_of(problem, fixed_fields(inputs))
    screened = with_searched_parts(problem, screen(problem, layouts))
    bound = space_bound(problem, layout_bounds(problem, screened.layouts))
    least = least_divided(problem, layouts, bound.seconds).seconds
    assert plan.outcome.bound_by == "space"
    assert plan.outcome.bound == pytest.approx(min(least, plan.outcome.value), rel=1e-8)
    assert 0 <= plan.outcome.gap <= 0.05
    assert f"{bound.layouts} layouts priced, {bound.excluded} excluded by memory" in plan.outcome.effort
    too_high = with_fields(plan, outcome=with_fields(plan.outcome, bound=plan.outcome.value * 1.01))
    first, *_ = false_statements(too_high, [score(too_high)])
    assert first.where == "outcome.bound" and "states a bound of" in first.message
