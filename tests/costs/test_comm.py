"""Collectives: the next larger measured size, an honest spread beyond the table, levels where nothing was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.comm import collective_cost
from planner.costs.cost import Cost
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster, Level, RankKind
from planner.specs.profile import Collective, Point

CLUSTER = Cluster(
    format=Cluster.FORMAT,
    name="two nodes",
    source="made up",
    ranks=(RankKind(kind="x", count=16, per_node=8),),
    levels=(
        Level(name="node", ranks=8, gb_per_s=100, latency_us=10),
        Level(name="cluster", ranks=16, gb_per_s=10, latency_us=50),
    ),
)
TABLE = {
    "all_to_all": Collective(
        source="measured",
        spread=0.1,
        points=(Point(ranks=8, gb_per_s=4), Point(ranks=2, gb_per_s=20, latency_us=5)),
    )
}


def cost(ranks, kind="all_to_all", size=1e9, calls=1, tables=TABLE):
    return collective_cost(kind, size, calls, Ranks(ranks), CLUSTER, tables)


def test_a_size_between_takes_the_next_larger_measured_one():
    assert cost(range(2)) == Cost(1e9 / 20e9 + 5e-6, "measured", 0.1, 1e9 / 20e9 + 5e-6)
    for ranks in (3, 4, 8):
        assert cost(range(ranks)) == cost(range(8)) == Cost(0.25, "measured", 0.1, 0.25)


def test_beyond_the_table_the_spread_says_so():
    assert cost(range(9)).value == cost(range(8)).value
    assert cost(range(9)).spread == 2 * cost(range(8)).spread


def test_without_a_table_the_level_that_joins_the_ranks_is_taken():
    near, far = cost(range(4), tables={}), cost(range(4, 12), tables={})
    assert near.value == pytest.approx(10e-6 + 1e9 * 3 / 4 / 100e9)
    assert far.value == pytest.approx(50e-6 + 1e9 * 7 / 8 / 10e9)
    assert (near.source, far.source) == ("analytic", "analytic")
    assert cost((7, 8), "p2p", tables={}).value == pytest.approx(50e-6 + 1e9 / 10e9)
    assert cost(range(8), "all_reduce", tables={}).value == pytest.approx(10e-6 + 1e9 * 2 * 7 / 8 / 100e9)


def test_ranks_that_straddle_nodes_take_a_measurement_that_crosses_nodes_too():
    """A table's sizes are of aligned blocks: 8 ranks of one node, 16 of two."""
    point = Point(ranks=16, gb_per_s=1)
    wide = {"all_to_all": Collective(source="measured", spread=0.1, points=(*TABLE["all_to_all"].points, point))}
    for ranks in ((7, 8), (4, 5, 6, 7, 8, 9), range(4, 12)):
        assert cost(ranks, tables=wide) == cost(range(16), tables=wide) != cost(range(8), tables=wide)
    assert cost((7, 8)).value == cost(range(8)).value
    assert cost((7, 8)).spread == 2 * cost(range(8)).spread  # as far as the table goes, and no farther


def test_one_rank_talks_to_nobody():
    assert cost((3,)).value == 0 and cost((3,), tables={}).value == 0


@given(st.integers(2, 16), st.floats(0, 1e12), st.integers(0, 100))
def test_more_to_move_and_more_calls_take_longer(ranks, size, calls):
    assert cost(range(ranks), size=size, calls=calls).value <= cost(range(ranks), size=2 * size, calls=calls).value
    assert cost(range(ranks), size=size, calls=calls).value <= cost(range(ranks), size=size, calls=calls + 1).value
