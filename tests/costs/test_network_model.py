"""Collectives move the bytes that they must, over the narrowest link that they cross; arrays of groups as one
by one.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.network_model import (
    SINGLE_RANK_NETWORK,
    CommGroup,
    NetworkLevel,
    NetworkModel,
    strided_group,
)
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint
from tests.costs.machines import NETWORK, nodes

GB = 1e9
SLOW = nodes(300.0, 25.0, 3.0, 8.0)
SIZES = st.sampled_from([2, 4, 8])
COLLECTIVES = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"]


@given(size=SIZES, amount=st.floats(1e3, 1e10))
def test_within_a_node_a_gather_moves_all_but_a_ranks_own_part(size, amount):
    among = strided_group(size)
    assert NETWORK.all_gather(amount, among) == pytest.approx(amount * (size - 1) / size / (300 * GB))
    assert NETWORK.reduce_scatter(amount, among) == NETWORK.all_gather(amount, among)
    assert NETWORK.all_reduce(amount, among) == pytest.approx(2 * NETWORK.all_gather(amount, among))


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("network", [SLOW, SINGLE_RANK_NETWORK])
def test_one_rank_alone_waits_for_nobody(collective, network):
    assert getattr(network, collective)(1e9, strided_group(1)) == 0.0


def test_a_group_of_neighbours_has_all_adapters_of_its_nodes():
    """Eight to a node leave it by eight adapters; those that stand eight apart have one each."""
    wide, narrow = NETWORK.all_gather(1e9, strided_group(16)), NETWORK.all_gather(1e9, strided_group(16, 8))
    assert narrow / wide == pytest.approx(8.0)


@given(size=SIZES, factor=st.floats(1.0, 100.0))
def test_more_takes_longer(size, factor):
    assert SLOW.all_gather(1e8 * factor, strided_group(size)) >= SLOW.all_gather(1e8, strided_group(size))
    assert SLOW.all_gather(1e8, strided_group(size * 2, 8)) >= SLOW.all_gather(1e8, strided_group(size, 8))


def test_an_exchange_between_nodes_waits_for_the_adapter():
    """Of k members in a node of n in all, (n − k)/n of what a rank sends leaves it, at its own adapter's rate."""
    assert NETWORK.all_to_all(1e9, strided_group(32)) == pytest.approx(1e9 * 24 / 32 / (25 * GB))
    assert NETWORK.all_to_all(1e9, strided_group(8)) == pytest.approx(1e9 * 7 / 8 / (300 * GB))
    assert NETWORK.all_to_all(1e9, strided_group(32), far=0.5) == pytest.approx(1e9 * 12 / 32 / (25 * GB))


def test_a_send_crosses_nodes_when_its_group_does():
    assert NETWORK.p2p(1e9, strided_group(2, 4)) == pytest.approx(1 / 300)
    assert NETWORK.p2p(1e9, strided_group(2, 8)) == pytest.approx(1 / 25)
    assert NETWORK.p2p(1e9, CommGroup(2, 1, 64)) == pytest.approx(1 / 25)
    assert SLOW.p2p(0.0, strided_group(2, 8), 3) == pytest.approx(24e-6)


def test_a_group_is_carried_by_the_nearest_level_that_joins_it():
    """Of several beyond nodes: as fast as the level itself where it is the last."""
    levels = (NetworkLevel(8, 300.0, 3.0), NetworkLevel(64, 50.0, 8.0), NetworkLevel(512, 5.0, 20.0))
    three = NetworkModel(levels)
    for span, far in ((64, levels[1]), (65, levels[2]), (512, levels[2])):
        two = NetworkModel((levels[0], far))
        for collective in COLLECTIVES:
            ranks = CommGroup(16, 4.0, span)
            assert getattr(three, collective)(1e9, ranks) == getattr(two, collective)(1e9, ranks)
    within = NetworkModel(levels[:1])
    assert three.all_gather(1e9, strided_group(8)) == within.all_gather(1e9, strided_group(8))


def test_ranks_on_nodes_of_their_own_wait_for_as_many_hops_however_far_apart_they_are():
    """A tree over four nodes has two levels."""
    found = {float(SLOW.all_gather(0.0, CommGroup(4, stride, 4 * stride))) for stride in (8, 16, 64)}
    assert found == {2 * 8e-6 * 2}


# ------------------------------------------------------------------------------------------------- many at once

THREE = (NetworkLevel(8, 300.0, 3.0), NetworkLevel(64, 50.0, 8.0), NetworkLevel(512, 5.0, 20.0))
GROUPS = st.builds(
    lambda size, stride, more: CommGroup(size, stride, size * stride + more),
    st.sampled_from([1, 2, 3, 4, 8, 16, 64]),
    st.sampled_from([1, 2, 4, 8, 8 / 3]),
    st.sampled_from([0, 0, 7, 100]),
)
POINTS = st.builds(
    CollectivePoint,
    ranks=st.sampled_from([2, 4, 8, 12, 16, 64, 128]),
    gb_per_s=st.floats(0.5, 200),
    latency_us=st.floats(0, 50),
)
TABLES = st.dictionaries(
    st.sampled_from(["all_gather", "reduce_scatter", "all_to_all", "p2p"]),
    st.builds(
        CollectiveCosts,
        source=st.just("measured"),
        spread=st.just(0.1),
        points=st.lists(POINTS, min_size=1, max_size=5, unique_by=lambda point: point.ranks).map(tuple),
    ),
)


@given(TABLES, st.lists(GROUPS, min_size=1, max_size=6), st.sampled_from(COLLECTIVES), st.data())
def test_many_groups_at_once_are_each_by_itself(tables, groups, collective, data):
    """With tables of any sizes, or none, and bytes of each group's own."""
    network, count = NetworkModel(THREE, tables), len(groups)
    sizes = np.array(data.draw(st.lists(st.floats(0, 1e11), min_size=count, max_size=count)))
    calls = np.array(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)), dtype=float)
    together = CommGroup(*(np.array(each, dtype=float) for each in zip(*groups, strict=True)))
    found = getattr(network, collective)(sizes, together, calls)
    for index, each in enumerate(groups):
        alone = getattr(network, collective)(float(sizes[index]), each, float(calls[index]))
        assert found[index] == float(alone)


@given(TABLES, GROUPS, st.sampled_from(["all_gather", "reduce_scatter", "all_to_all", "p2p"]), st.floats(0, 1e11))
def test_a_cost_is_what_arrays_have_and_its_source_says_where_it_is_from(tables, ranks, kind, size):
    """Measured where the table has a point at the level that joins the group, or farther; else analytic."""
    network = NetworkModel(THREE, tables)
    cost = network.collective_cost(kind, size, ranks, 3)
    assert cost.value == cost.comm == float(getattr(network, kind)(size, ranks, 3))
    if ranks.size > 1:
        nearer = max((level.ranks for level in THREE[:-1] if level.ranks < ranks.span), default=0)
        known = kind in tables and any(point.ranks > nearer for point in tables[kind].points)
        assert cost.source == ("measured" if known else "analytic")


@given(TABLES, GROUPS, st.floats(0, 1e11))
def test_one_send_by_itself_is_what_arrays_have(tables, ranks, size):
    network = NetworkModel(THREE, tables)
    assert network.send_seconds(size, ranks) == float(network.p2p(size, ranks))
