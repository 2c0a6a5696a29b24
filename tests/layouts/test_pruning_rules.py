"""What the space of layouts leaves out by rule is not missed: with each rule turned off, the best is no quicker."""

from itertools import product

import numpy as np
import pytest

from planner.layouts.screening.layout_screening import screen
from planner.layouts.space import layout_space as space
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.specs.parallelism import Parallelism
from tests.static_jobs import small_cluster, static_inputs

VARIED = [300, 9000, 512, 700, 4096, 1000, 2048, 600, 333, 8192, 64, 1500, 2500, 700, 128, 4000] * 2
JOBS = [
    ("llama-3-8b", 16, [8192] * 32, ""),
    ("llama-3-8b", 16, [65536] * 8, ""),
    ("llama-3-8b", 16, VARIED, ""),
    ("llama-3-70b", 32, [8192] * 64, "zero: 3"),
    ("qwen3-30b-a3b", 16, [4096] * 32, ""),
    ("qwen3-30b-a3b", 16, VARIED, "pp: 1"),
    ("deepseek-v2-lite", 16, [4096] * 64, "zero: 1"),
]


def any_heads(trained, tp, cp, per_node, fixed):
    return [n for n in space.divisors(cp, cp) if trained.module.heads % (tp * n) == 0]


def any_copies(pipelines, model_ranks, per_node, fixed):
    return [*space.divisors(pipelines, pipelines)]


def any_expert_mesh(trained, mesh, fixed):
    moe, stage_ranks = trained.module.routed_experts, trained.ranks // mesh[3]
    if moe is None:
        yield 1, 1
        return
    widths = [n for n in space.divisors(stage_ranks, stage_ranks) if moe.ffn % n == 0]
    for ep, etp in product(space.divisors(moe.experts, stage_ranks), widths):
        if moe.experts % ep == 0 and stage_ranks % (ep * etp) == 0:
            yield ep, etp


def any_micro_batch(trained, pipelines, most):
    return range(1, most + 1)


def all_copies(table):
    return np.zeros(len(table), dtype=bool)


RULES = {  # of layout_space, and what they would give without leaving anything out
    "copies_without_shards": all_copies,
    "head_ranks": any_heads,
    "copies": any_copies,
    "expert_meshes": any_expert_mesh,
    "micro_batch_sizes": any_micro_batch,
}


def best_seconds(inputs):
    """Layouts of the space, and the least seconds by the closed form of those that fit."""
    problem = layout_problem(inputs)
    found = space.layout_space(problem.trained, problem.machine.network.per_node, fixed_fields(inputs) or Parallelism())
    screened = screen(problem, found)
    return len(found["tp"]), screened.seconds[screened.fits(problem)].min()


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    """Of each job its inputs, and what the space has with all rules."""
    found = []
    for model, ranks, sizes, fixed in JOBS:
        folder = tmp_path_factory.mktemp("job")
        inputs = static_inputs(folder, model, small_cluster(folder, "h100-80gb", ranks), sizes, fixed, "")
        found.append((inputs, *best_seconds(inputs)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.every(2)
def test_the_best_is_no_quicker_without_a_rule(pruned, monkeypatch, rule):
    monkeypatch.setattr(space, rule, RULES[rule])
    more = False
    for inputs, layouts, best in pruned:
        whole, without = best_seconds(inputs)
        more = more or whole > layouts
        assert best <= without * (1 + 1e-9)
    assert more  # else the rule left nothing out, and the test says nothing
