"""Where nothing fits, the error says on how many ranks something does: there it is solved, on a node less it is not."""

import re

import pytest

from planner.errors import Infeasible
from planner.layouts import layout_problem
from planner.strategies import parallel_search
from planner.strategies.static.closed_form_change import enough_ranks
from tests.static_jobs import small_cluster, static_inputs


def inputs_on(folder, ranks, per_node, model, sizes, fixed=""):
    return static_inputs(folder, model, small_cluster(folder, "h100-80gb", ranks, per_node), sizes, fixed)


CASES = [
    ("llama-3-70b", 8, 8, [4096] * 24, "zero: 1, recompute: none"),
    ("llama-3-70b", 2, 2, [4096] * 24, ""),
    ("qwen3-30b-a3b", 2, 2, [4096] * 60, ""),
    ("llama-3-70b", 4, 4, [300, 9000, 512, 700, 4096, 1000, 2048, 600], ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ranks", "per_node", "sizes", "fixed"), CASES)
@pytest.mark.every(8)
def test_so_many_ranks_do_and_a_node_less_does_not(tmp_path, model, ranks, per_node, sizes, fixed):
    with pytest.raises(Infeasible) as refused:
        parallel_search.plan(inputs_on(tmp_path, ranks, per_node, model, sizes, fixed), None)
    count = int(re.search(r"fits on (\d+) ranks: \{tp: ", refused.value.fix)[1])
    assert count % per_node == 0
    wider = inputs_on(tmp_path, count, per_node, model, sizes, fixed)
    assert parallel_search.plan(wider, None).outcome.value > 0
    with pytest.raises(Infeasible):
        parallel_search.plan(inputs_on(tmp_path, count - per_node, per_node, model, sizes, fixed), None)


@pytest.mark.slow
def test_the_layout_that_it_says_is_one_that_fits(tmp_path):
    found = enough_ranks(layout_problem(inputs_on(tmp_path, 2, 2, "llama-3-70b", [4096] * 24)))
    fixed = f"tp: {found.layout.tp}, pp: {found.layout.pp}, cp: {found.layout.cp}, zero: {found.layout.zero}"
    again = inputs_on(tmp_path, found.ranks, 2, "llama-3-70b", [4096] * 24, fixed)
    assert parallel_search.plan(again, None).outcome.value > 0


@pytest.mark.slow
def test_of_a_large_model_on_one_node(tmp_path):
    problem = layout_problem(inputs_on(tmp_path, 8, 8, "llama-3.1-405b", [8192] * 64))
    found = enough_ranks(problem)
    assert 48 <= found.ranks <= 128


@pytest.mark.slow
def test_where_sixteen_times_as_many_do_not_do(tmp_path):
    inputs = inputs_on(tmp_path, 2, 2, "llama-3.1-405b", [8192] * 64)
    with pytest.raises(Infeasible) as refused:
        parallel_search.plan(inputs, None)
    assert "16 times as many ranks do not do" in refused.value.fix
