"""Measured collectives: the next larger size counts, spread grows beyond the table, other levels are analytic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.cost_lines import Cost
from planner.costs.network_model import group_of_ranks, network_of
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint

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
    "all_to_all": CollectiveCosts(
        source="measured",
        spread=0.1,
        points=(CollectivePoint(ranks=8, gb_per_s=4), CollectivePoint(ranks=2, gb_per_s=20, latency_us=5)),
    )
}


def cost(ranks, kind="all_to_all", size=1e9, calls=1, tables=TABLE):
    return on(CLUSTER, ranks, kind, size, calls, tables)


def on(cluster, ranks, kind, size, calls, tables):
    return network_of(cluster, cluster.ranks[0].kind, ASSUMED_RATES, tables).collective_cost(
        kind, size, group_of_ranks(cluster, tuple(ranks)), calls
    )


def test_a_size_between_takes_the_next_larger_measured_one():
    assert cost(range(2)) == Cost(1e9 / 20e9 + 5e-6, "measured", 0.1, 1e9 / 20e9 + 5e-6)
    for ranks in (3, 4, 8):
        assert cost(range(ranks)) == cost(range(8)) == Cost(0.25, "measured", 0.1, 0.25)


def test_beyond_the_table_the_spread_says_so():
    alone = with_fields(CLUSTER, levels=(Level(name="node", ranks=16, gb_per_s=100, latency_us=10),))
    beyond = on(alone, range(9), "all_to_all", 1e9, 1, TABLE)
    assert beyond.value == cost(range(8)).value and beyond.spread == 2 * cost(range(8)).spread


def test_what_was_measured_in_a_node_says_nothing_of_what_leaves_it():
    assert cost(range(9)) == cost(range(9), tables={})
    assert cost((7, 8)) == cost((7, 8), tables={})


def test_without_a_table_the_wires_of_the_level_that_joins_the_ranks_are_taken():
    links, adapters = ASSUMED_RATES.link_share * 100e9, ASSUMED_RATES.adapter_share * 10e9
    near, far = cost(range(4), tables={}), cost(range(4, 12), tables={})
    assert near.value == pytest.approx(3 * 10e-6 + 1e9 * 3 / 4 / links)
    assert far.value == pytest.approx(3 * 10e-6 + 2 * 50e-6 + 1e9 * 4 / 8 / adapters)  # half of it leaves the node
    assert (near.source, far.source) == ("analytic", "analytic")
    assert cost((7, 8), "p2p", tables={}).value == pytest.approx(50e-6 + 1e9 / adapters)
    assert cost(range(8), "all_reduce", tables={}).value == pytest.approx(2 * (7 * 10e-6 + 1e9 * 7 / 8 / links))


def test_rings_leave_a_node_by_all_adapters_of_their_members():
    wide, narrow = cost(range(16), "all_gather", 1e12, tables={}), cost((0, 8), "all_gather", 1e12, tables={})
    speeds = [1e12 * (size - 1) / size / each.value for size, each in ((16, wide), (2, narrow))]
    assert speeds[1] == pytest.approx(ASSUMED_RATES.adapter_share * 10e9, rel=1e-4)
    assert speeds[0] == pytest.approx(8 * speeds[1], rel=1e-3)


def test_ranks_that_straddle_nodes_take_a_measurement_that_crosses_nodes_too():
    """A table's sizes are of aligned blocks: 8 ranks of one node, 16 of two."""
    point = CollectivePoint(ranks=16, gb_per_s=1)
    wide = {"all_to_all": CollectiveCosts(source="measured", spread=0.1, points=(*TABLE["all_to_all"].points, point))}
    for ranks in ((7, 8), (4, 5, 6, 7, 8, 9), range(4, 12)):
        assert cost(ranks, tables=wide) == cost(range(16), tables=wide) != cost(range(8), tables=wide)


@given(st.integers(2, 16), st.floats(0, 1e12), st.integers(0, 100))
def test_more_to_move_and_more_calls_take_longer(ranks, size, calls):
    assert cost(range(ranks), size=size, calls=calls).value <= cost(range(ranks), size=2 * size, calls=calls).value
    assert cost(range(ranks), size=size, calls=calls).value <= cost(range(ranks), size=size, calls=calls + 1).value
