"""Collectives move what their names say, over the narrowest of what they cross."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.static.wires import Wires

GB = 1e9
WIRES = Wires(per_node=8, near_gb_per_s=300.0, far_gb_per_s=25.0, near_us=0.0, far_us=0.0)
SLOW = Wires(per_node=8, near_gb_per_s=300.0, far_gb_per_s=25.0, near_us=3.0, far_us=8.0)
SIZES = st.sampled_from([2, 4, 8])


@given(size=SIZES, amount=st.floats(1e3, 1e10))
def test_within_a_node_a_gather_moves_all_but_a_ranks_own_part(size, amount):
    assert WIRES.gather(amount, size, 1) == pytest.approx(amount * (size - 1) / size / (300 * GB))
    assert WIRES.all_reduce(amount, size, 1) == pytest.approx(2 * WIRES.gather(amount, size, 1))


@pytest.mark.parametrize("collective", ["gather", "all_reduce", "all_to_all"])
def test_one_rank_alone_waits_for_nobody(collective):
    assert getattr(SLOW, collective)(1e9, 1, 1) == 0.0


def test_a_group_of_neighbours_has_all_adapters_of_its_nodes():
    """Eight to a node leave it by eight adapters; those that stand eight apart have one each."""
    wide, narrow = WIRES.gather(1e9, 16, 1), WIRES.gather(1e9, 16, 8)
    assert narrow / wide == pytest.approx(8.0)


@given(size=SIZES, factor=st.floats(1.0, 100.0))
def test_more_takes_longer(size, factor):
    assert SLOW.gather(1e8 * factor, size, 1) >= SLOW.gather(1e8, size, 1)
    assert SLOW.gather(1e8, size * 2, 8) >= SLOW.gather(1e8, size, 8)


def test_an_exchange_between_nodes_waits_for_the_adapter():
    """Of k members in a node of n in all, (n − k)/n of what a rank sends leaves it, at its own adapter's rate."""
    assert WIRES.all_to_all(1e9, 32, 1) == pytest.approx(1e9 * 24 / 32 / (25 * GB))
    assert WIRES.all_to_all(1e9, 8, 1) == pytest.approx(1e9 * 7 / 8 / (300 * GB))
    assert WIRES.all_to_all(1e9, 32, 1, far=0.5) == pytest.approx(1e9 * 12 / 32 / (25 * GB))


def test_a_send_crosses_nodes_when_its_stride_does():
    assert WIRES.p2p(1e9, 4) == pytest.approx(1 / 300)
    assert WIRES.p2p(1e9, 8) == pytest.approx(1 / 25)
    assert SLOW.p2p(0.0, 8, 3) == pytest.approx(24e-6)
