"""What sets of recomputed parts free and take: more parts free more, and no set takes less than its parts."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from planner.costs import freed_bytes, recompute_seconds_by
from planner.costs.step.stage_seconds import mean_layer_passes
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_problem import layout_problem
from planner.layouts.space.layout_space import layout_space
from planner.specs.layers import module_parts
from planner.specs.parallelism import recompute_of
from tests.static_jobs import small_cluster, static_inputs


@pytest.mark.parametrize("fixed", ["", "dtype: fp8", "sequence_parallel: false"])
@pytest.mark.parametrize("model", ["llama-3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "nemotron-h-8b"])
@pytest.mark.every(3)
def test_more_parts_free_more_and_take_longer(model, fixed, tmp_path):
    cluster = small_cluster(tmp_path, "h100-80gb", 16)
    problem = layout_problem(static_inputs(tmp_path, model, cluster, [4096] * 32, fixed))
    module, accounting = problem.trained.module, problem.accounting
    found = layout_space(problem.trained, 8, problem.trained.fixed)
    some = np.random.default_rng(0).choice(len(found["tp"]), 200, replace=False)
    bare = {name: column[some] for name, column in found.items()} | {"recompute": np.zeros(200, dtype=np.int64)}
    _, at = next(column_batches(problem.trained, bare))
    parts = module_parts(module)
    sets = [frozenset(each) for size in range(len(parts) + 1) for each in combinations(parts, size)]
    seconds = dict(
        zip(sets, recompute_seconds_by(module, [*map(recompute_of, sets)], at, problem.machine), strict=True)
    )
    freed = {each: freed_bytes(module, recompute_of(each), at, accounting) for each in sets}
    full = freed_bytes(module, "full", at, accounting)
    assert (freed[frozenset()].share == 0.0).all() and (freed[frozenset()].held == 0.0).all()
    for each in sets:
        alone = [frozenset({part}) for part in each]
        together = sum((freed[part].share for part in alone), np.zeros_like(full.share))
        np.testing.assert_allclose(freed[each].share, together, rtol=1e-9, atol=1e-12)
        assert (freed[each].share <= full.share).all() and (freed[each].share <= freed[each].most + 1e-12).all()
        passes = mean_layer_passes(module, replace(at, recomputed_parts=each), problem.machine)
        taken = passes.partial.seconds - passes.backward.seconds
        assert (seconds[each] <= taken * (1.0 + 1e-9) + 1e-12).all()
        assert len(each) > 1 or (seconds[each] >= taken - 1e-12).all()
        assert all((freed[each].held >= freed[part].held).all() for part in alone)
