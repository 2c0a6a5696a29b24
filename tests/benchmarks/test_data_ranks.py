"""Baselines of ranks that meet once a step are possible packings; what the case says of a packing is so."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.hdp import naive, naive_offloaded, static
from benchmarks.baselines_table import require_legal
from benchmarks.data_ranks import ABLATION, compared, on_device
from planner.costs.cost_lines import CostLine
from planner.costs.packing_problem import GroupShape, PackingProblem, RankPool
from planner.packing.packed_groups import PackedGroup
from tests.examples import examples
from tests.step_groupings import offloading, require_possible

NODE = 8


def problem_of(sizes, ranks: int, cap: int = 1000) -> PackingProblem:
    """Any number of ranks within a node and of nodes; half of every activation can go to the host."""
    degrees = [d for d in (*range(1, NODE + 1), *range(2 * NODE, ranks + 1, NODE)) if d <= ranks]
    shapes = tuple(
        GroupShape(d, 0, cap, CostLine(1e-7 / d, (1e-4 + (1e-5 if d > NODE else 0)) / d, 0.01)) for d in degrees
    )
    pools = (RankPool(0, ranks, NODE),)
    return PackingProblem(dict(enumerate(sizes)), pools, shapes, 0.0, 0.02, {}, "step", offloading(0.5))


@examples(50)
@given(
    st.sampled_from((8, 16, 32)).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.integers(1, 1000 * n), min_size=1))
    )
)
def test_baselines_are_possible_and_each_is_what_it_is_said_to_be(drawn):
    ranks, sizes = drawn
    problem = problem_of(sizes, ranks)
    for way in (static, naive, naive_offloaded):
        packed = way(problem)
        require_possible(problem, packed)
        require_legal(on_device(problem, packed), packed, way.__name__)
    (degree,) = {problem.shapes[group.shape].degree for row in static(problem) for group in row}
    assert degree * 1000 >= max(sizes) and degree & (degree - 1) == 0
    for way, given_to in ((naive, replace(problem, offload=None)), (naive_offloaded, problem)):
        for group in (group for row in way(problem) for group in row):
            assert group.shape == (0 if len(group.items) > 1 else min(given_to.choices(group.items[0])))


def test_naive_deals_groups_to_the_first_micro_batch_with_ranks_for_them():
    problem = replace(problem_of([3000, 5000, 2000, 900, 800, 100], 8), offload=None)
    assert naive(problem) == (
        (PackedGroup(2, (0,), 0), PackedGroup(4, (1,), 3)),
        (PackedGroup(1, (2,), 0), PackedGroup(0, (3, 5), 2), PackedGroup(0, (4,), 3)),
    )


def test_no_baseline_holds_what_all_ranks_do_not():
    problem = replace(problem_of([9000], 8), offload=None)
    assert static(problem) is None and naive(problem) is None


@pytest.mark.slow
def test_every_way_is_above_the_bound_and_ours_is_the_best():
    problem = problem_of([4000, 2500, *[700] * 9, *[120] * 60], 16)
    lines = {line["way"]: line for line in compared(problem, ABLATION)}
    assert [*lines] == [*ABLATION]
    ours = lines["+ balance (planner)"]
    assert all(ours["value_ms"] <= line["value_ms"] and line["over_bound"] >= 0 for line in lines.values())
    assert ours["last_over_mean"] >= ours["max_over_mean"] >= 1
