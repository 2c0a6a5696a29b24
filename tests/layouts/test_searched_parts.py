"""The set of parts that a layout recomputes: against every set of parts, and below it the bound."""

import random
from dataclasses import replace

import numpy as np
import pytest

from planner.layouts.bounds.space_bound import layout_bounds, space_bound
from planner.layouts.screening.layout_screening import screen
from planner.layouts.screening.searched_parts import searched_sets, with_searched_parts
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import RECOMPUTE, SCHEDULES
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.layers import kind_counts
from planner.specs.parallelism import ZERO_BUBBLE
from planner.strategies.one_module.simulated_layouts import simulate_layout
from tests.static_jobs import small_cluster, static_inputs

VARIED = [300, 9000, 512, 700, 4096, 1000, 2048, 600, 333, 8192, 64, 1500, 2500, 700, 128, 4000]
# model, ranks, sequences, fixed fields, GiB of a device
JOBS = [
    ("llama-3-8b", 8, [8192] * 16, "", 80.0),
    ("llama-3-8b", 8, [8192] * 32, "vpp: 2, pp: 2", 60.0),
    ("llama-3-8b", 8, VARIED, "pp: 1", 60.0),
    ("qwen3-30b-a3b", 16, [4096] * 32, "cp: 1, zero: 1", 80.0),
    ("deepseek-v2-lite", 16, [4096] * 32, "cp: 1, zero: 1", 40.0),
    ("nemotron-h-8b", 16, [4096] * 32, "cp: 1, zero: 3", 40.0),
]
# Sets are compared by the mean layer and micro-batch: of others the chosen one is within this of the best. Where
# activations are offloaded too, what a set frees is no longer sent: so layouts that are far from the best err by more.
# Norms that recomputation frees are those of experts alone, whose first layers are dense: 3 % of such a model.
CLOSE, OFTEN = 1.1, 0.9  # far where one full layer on the slowest stage is dear: of experts, launched one by one
BEST = 1.001  # and the quickest of all layouts is within this of the quickest
CLOSE_BESIDE_OFFLOAD, OFTEN_BESIDE_OFFLOAD = 1.17, 0.8
WITHOUT_OFFLOAD = [(*job[:3], ", ".join(filter(None, (job[3], "offload: 0"))), job[4]) for job in JOBS]
NONE = RECOMPUTE.index("none")


@pytest.fixture(params=[*JOBS, *WITHOUT_OFFLOAD], ids=lambda job: f"{job[0]} {job[3]}")
def job(request, tmp_path):
    """A job's inputs and its problem."""
    model, ranks, sizes, fixed, gib = request.param
    inputs = static_inputs(tmp_path, model, small_cluster(tmp_path, "h100-80gb", ranks), sizes, fixed)
    kind = inputs.cluster.ranks[0].kind
    inputs = replace(inputs, devices={kind: with_fields(inputs.device, memory_gib=gib)})
    return inputs, layout_problem(inputs)


def with_every_set(problem, found):
    """Each layout without recomputation with every set of parts, screened, by set."""
    bare = {name: column[without_recompute(found)] for name, column in found.items()}
    return {
        how: screen(problem, {**bare, "recompute": np.full_like(bare["recompute"], RECOMPUTE.index(how))})
        for how in ("none", "selective", *searched_sets(problem))
    }


def without_recompute(found):
    """Which layouts recompute nothing, and could."""
    return (found["recompute"] == NONE) & ~np.isin(found["schedule"], [SCHEDULES.index(each) for each in ZERO_BUBBLE])


def fitting_seconds(problem, screened):
    return np.where(screened.fits(problem), screened.seconds, np.inf)


@pytest.mark.slow
@pytest.mark.every(8)
def test_no_set_of_parts_is_quicker_than_the_one_that_is_found(job):
    inputs, problem = job
    found = layouts_of(problem, fixed_fields(inputs))
    searched = with_searched_parts(problem, screen(problem, found))
    each = with_every_set(problem, found)
    assert len(each) >= 4 and len(searched.seconds) > len(found["tp"])
    best = np.min([fitting_seconds(problem, one) for one in each.values()], axis=0)
    seconds, named = (
        fitting_seconds(problem, searched),
        [name for name in found if name not in ("recompute", "full_layers", "offload", "rank_order")],
    )
    chosen: dict[tuple[int, ...], float] = {}
    for place, key in enumerate(zip(*(searched.layouts[name].tolist() for name in named), strict=True)):
        chosen[key] = min(chosen.get(key, np.inf), seconds[place])
    bare = [found[name][without_recompute(found)].tolist() for name in named]
    own = np.array([chosen[key] for key in zip(*bare, strict=True)])
    assert (np.isfinite(best) | ~np.isfinite(own)).all()
    fits = np.isfinite(own)
    # Stages of unequal layers offload more with parts recomputed, so that a layout may fit by these alone.
    assert fits.sum() >= 0.99 * np.isfinite(best).sum()
    assert own.min() <= best.min() * BEST
    slower = own[fits] / best[fits]
    if problem.trained.fixed.offload is None:
        assert slower.max() <= CLOSE_BESIDE_OFFLOAD and np.mean(slower <= 1.0 + 1e-9) >= OFTEN_BESIDE_OFFLOAD
        return
    alike = problem.trained.equal_lengths and len(kind_counts(problem.trained.module)) == 1
    assert slower.max() <= (1.0 + 1e-9 if alike else CLOSE)
    assert np.mean(slower <= 1.0 + 1e-9) >= OFTEN


@pytest.mark.slow
@pytest.mark.every(20)
def test_the_bound_is_below_every_set_of_parts(job):
    inputs, problem = job
    searched = with_searched_parts(problem, screen(problem, layouts_of(problem, fixed_fields(inputs))))
    bounds = layout_bounds(problem, searched.layouts)
    least = space_bound(problem, bounds).seconds
    of_bare = bounds.seconds[without_recompute(searched.layouts)]
    tried = 0
    for how, screened in with_every_set(problem, searched.layouts).items():
        fits, needs = screened.fits(problem), screened.layouts["full_layers"] + (how != "none") > 0
        places = np.flatnonzero(fits & needs & (screened.seconds < 3.0 * least)).tolist()
        for place in random.Random(str(how)).sample(places, min(len(places), 2)):
            layout = layout_at(problem.trained, screened.layouts, place)
            seconds = simulate_layout(inputs, layout).seconds
            assert of_bare[place] <= seconds * (1.0 + 1e-9), layout
            assert least <= seconds * (1.0 + 1e-9)
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("knobs", [Knobs(recomputed_parts=()), Knobs(recompute=("none", "full"))])
@pytest.mark.every(9)
def test_what_a_framework_cannot_be_told_is_not_searched(job, knobs):
    inputs, problem = job
    problem = replace(problem, knobs=knobs)
    screened = screen(problem, layouts_of(problem, fixed_fields(inputs)))
    assert with_searched_parts(problem, screened) is screened
    named = replace(problem, knobs=Knobs(recomputed_parts=("norm", "mlp")))
    assert searched_sets(named) in ((("norm",), ("mlp",)), (("norm",),))
