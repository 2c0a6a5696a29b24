"""Activations that ranks hold by their slots: as many micro-batches as each schedule is known for."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory.pipeline_activations import interleaved_in_flight
from planner.plan.legal.order_laws import slot_laws
from planner.plan.schedules import SCHEDULES, schedule_slots
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from tests.plan.schedules.made import some_order
from tests.slots_in_flight import micro_batches_in_flight, peak_in_flight

RANKS, ROWS = range(1, 7), range(1, 13)
PLAIN = [name for name in SCHEDULES if name not in ("interleaved", "forward_only")]


def every(name, **kept):
    """Stages, micro-batches, and the peak of each rank."""
    return [
        (p, m, [peak_in_flight(slots, **kept) for slots in schedule_slots(name, p, m)]) for p in RANKS for m in ROWS
    ]


@pytest.mark.parametrize("name", PLAIN)
def test_every_generator_is_legal(name):
    for p in RANKS:
        for m in ROWS:
            assert not [*slot_laws(schedule_slots(name, p, m), m, 1, "order")]


def test_interleaving_is_legal():
    for p in RANKS:
        for m in range(p, 13, p):
            for v in (1, 2, 3):
                assert not [*slot_laws(schedule_slots("interleaved", p, m, v), m, v, "order")]


def test_1f1b_holds_as_many_as_stages_are_left():
    for p, m, peaks in every("1f1b"):
        assert peaks == [min(p - s, m) for s in range(p)]


def test_gpipe_holds_all():
    for p, m, peaks in every("gpipe"):
        assert peaks == [m] * p


def test_forwards_alone_hold_nothing():
    assert all(peaks == [0.0] * p for p, _, peaks in every("forward_only"))


def test_zb_h1_holds_what_the_first_stage_of_1f1b_does():
    """Where W keeps all until it comes (arXiv 2401.10241, table 1)."""
    for p, m, peaks in every("zb_h1", for_weights=1.0):
        assert peaks == [min(p, m)] * p


def test_zb_h2_holds_2p_minus_1():
    for p, m, peaks in every("zb_h2", for_weights=1.0):
        assert peaks == [min(2 * p - 1, m)] * p


@pytest.mark.parametrize("name", PLAIN)
def test_what_i_gives_back_only_lowers_the_peak(name):
    for (p, m, all_kept), (_, _, some_kept) in zip(every(name, for_weights=1.0), every(name), strict=True):
        assert all(KEPT_FOR_WEIGHTS * a <= b <= a + 1e-12 for a, b in zip(all_kept, some_kept, strict=True)), (p, m)


def test_interleaving_holds_what_megatron_counts():
    for p in RANKS:
        for m in range(2 * p, 13, p):
            for v in (2, 3):
                setup = LayoutColumns(ranks=p, seq=1.0, batch=float(m), pp=p, vpp=v)
                counted = [min(m, float(interleaved_in_flight(setup, s))) for s in range(p)]
                assert [peak_in_flight(slots, v) for slots in schedule_slots("interleaved", p, m, v)] == pytest.approx(
                    counted
                )


@given(st.integers(0, 2**32).map(Random), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.floats(0, 1))
def test_all_is_given_back_in_any_order(chance, pp, micro_batches, chunks, for_weights):
    for slots in some_order(chance, pp, micro_batches, chunks):
        after = micro_batches_in_flight(slots, chunks, for_weights)
        assert after[-1] == pytest.approx(0.0, abs=1e-12) and min(after) > -1e-12
        assert max(after) <= micro_batches + 1e-12
