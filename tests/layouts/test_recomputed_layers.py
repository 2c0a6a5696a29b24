"""As few layers are recomputed as fit, and the fullest stage is the fullest of all: against every stage by itself."""

from dataclasses import replace

import numpy as np
import pytest

from planner.costs.memory.footprint import footprint
from planner.costs.memory.stage_bytes import stages_bytes
from planner.layouts.screening.recomputed_layers import fullest_bytes, solved_recompute
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_problem import layout_problem
from planner.layouts.space.layout_space import layout_space
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY, MemoryCoefficients
from tests.static_jobs import small_cluster, static_inputs

MODELS = ("llama-3-8b", "qwen3-30b-a3b", "deepseek-v2-lite")  # the last with layers of two kinds
KEPT = (MemoryCoefficients(), PLANNER_RUNTIME_MEMORY, MemoryCoefficients(gradient_bytes=2.0, keeps_gathered=True))


@pytest.fixture(
    params=[(model, schedule) for model in MODELS for schedule in ("", "schedule: gpipe", "schedule: zb_h1")]
)
def columns(request, tmp_path):
    """A module, and some layouts of it as columns."""
    model, schedule = request.param
    cluster = small_cluster(tmp_path, "h100-80gb", 16)
    problem = layout_problem(static_inputs(tmp_path, model, cluster, [8192] * 32, schedule))
    found = layout_space(problem.trained, 8, problem.trained.fixed)
    some = np.random.default_rng(0).choice(len(found["tp"]), 400, replace=False)
    batches = column_batches(problem.trained, {name: column[some] for name, column in found.items()})
    return problem.trained.module, [at for _, at in batches]


def bytes_of_every_stage(module, at, accounting, share):
    """Bytes on the fullest stage of all, (layouts,)."""
    stages = range(int(at.pp.max()))
    return np.max(
        [footprint(module, replace(at, full_recompute=share), accounting, each).total for each in stages], axis=0
    )


@pytest.mark.every(13)
@pytest.mark.parametrize("accounting", KEPT)
def test_the_fullest_stage_is_the_fullest_of_all(columns, accounting):
    module, batches = columns
    for at in batches:
        for share in (0.0, 0.3, 1.0):
            shares = np.full(at.tp.shape, share)
            found = fullest_bytes([*stages_bytes(module, at, accounting)], shares, accounting.fragmentation)
            assert found == pytest.approx(bytes_of_every_stage(module, at, accounting, shares), rel=1e-9)


@pytest.mark.every(13)
@pytest.mark.parametrize("accounting", KEPT)
def test_no_fewer_layers_would_fit(columns, accounting):
    """Brute force on each stage: every number of its layers, and the least that fits."""
    module, batches = columns
    for at in batches:
        none, full = (np.full(at.tp.shape, share) for share in (0.0, 1.0))
        most, least = (bytes_of_every_stage(module, at, accounting, share) for share in (none, full))
        allowed = float(np.median((most + least) / 2.0))
        stages = [*stages_bytes(module, at, accounting)]
        share = solved_recompute(stages, allowed, accounting)
        needed = fullest_bytes(stages, share, accounting.fragmentation)
        assert needed == pytest.approx(bytes_of_every_stage(module, at, accounting, share), rel=1e-9)
        assert ((share == 0.0) == (most <= allowed)).all()
        for stage in stages:
            kept = stage.fits_kept(allowed, accounting.fragmentation)
            own = np.where(kept, 0.0, stage.least_share(allowed, accounting.fragmentation))
            fits = stage.total(own, accounting.fragmentation) <= allowed * (1 + 1e-12)
            assert (fits | (own == 1.0)).all()
            fewer = np.maximum(0.0, own - 1.0 / np.maximum(1.0, stage.layers))
            assert ((stage.total(fewer, accounting.fragmentation) > allowed * (1 - 1e-12)) | (own == 0.0)).all()


@pytest.mark.every(3)
def test_a_framework_without_ranges_recomputes_all_or_none(columns):
    module, batches = columns
    for at in batches:
        most = bytes_of_every_stage(module, at, KEPT[0], np.zeros(at.tp.shape))
        allowed = float(np.median(most)) * (1 + 1e-9)  # not one layout's to the last digit
        stages = [*stages_bytes(module, at, KEPT[0])]
        share = solved_recompute(stages, allowed, KEPT[0], whole=True)
        needed = fullest_bytes(stages, share, KEPT[0].fragmentation)
        assert (share == (most > allowed)).all()
        assert needed == pytest.approx(bytes_of_every_stage(module, at, KEPT[0], share), rel=1e-9)
