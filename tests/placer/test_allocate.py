"""Works are divided completely, near the malleable optimum, which is a bound; levels need not wait for each other."""

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.placer import towers
from planner.placer import Allocation, Lanes, SpeedEnvelope, Work, allocate, malleable_seconds, place, placement_bound


def line(fixed: float, each: float):
    """Seconds of a pass: some of them fixed, and some for each item of the fullest lane."""
    return lambda width, items: fixed + each * -(-items // width)


@st.composite
def graphs_of_works(draw):
    works = []
    for index in range(draw(st.integers(1, 5))):
        before = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        seconds = line(draw(st.integers(0, 8)) / 4, draw(st.integers(1, 8)) / 8)
        works.append(
            Work(f"{index}", draw(st.integers(1, 24)), seconds, (1, 2, 3, 4, 8), {f"{b}": 0.0 for b in before})
        )
    return works


@given(graphs_of_works(), st.sampled_from((1, 3, 8)))
def test_each_item_is_placed_once_and_no_placement_beats_the_bound(works, devices):
    lanes = Lanes(devices, per_node=4)
    pieces = allocate(works, lanes, effort=800)
    found = place(pieces, lanes, effort=100)
    for work in works:
        assert sum(piece.items for piece in pieces if piece.work == work.name) == work.items
    ends = {work.name: [each.end for each in found.placed if each.piece.work == work.name] for work in works}
    for each in found.placed:
        before = next(work.after for work in works if work.name == each.piece.work)
        assert all(each.start >= max(ends[name]) for name in before)
    bound = Allocation.of(works, devices).bound
    assert bound <= placement_bound(pieces, lanes) * (1 + 1e-9) <= found.seconds * (1 + 1e-9)
    assert allocate(works, lanes, effort=800) == pieces


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4), st.integers(1, 6))
def test_the_envelope_is_concave_and_above_all_speeds(points, devices):
    envelope = SpeedEnvelope.of([(float(width), speed / 10) for width, speed in points])
    slopes = [
        (high - low) / (to - since)
        for since, to, low, high in zip(
            envelope.widths, envelope.widths[1:], envelope.speeds, envelope.speeds[1:], strict=False
        )
    ]
    assert slopes == sorted(slopes, reverse=True)
    for width, speed in points:
        assert envelope.width(10 / speed) <= width * (1 + 1e-9)
    alone = malleable_seconds([envelope], devices)
    assert envelope.width(alone) <= devices * (1 + 1e-9)
    assert envelope.width(alone * (1 - 1e-6)) > devices or alone == envelope.least_seconds


def test_seconds_that_are_linear_between_widths_are_no_bound():
    """Two works share four devices: one after the other on all takes 6 s, where a line between 12 s on one and 3 s on
    four has 9 s on two.
    """
    works = [Work(name, 12, lambda width, items: items / width, (1, 4)) for name in "ab"]
    assert Allocation.of(works, 4).bound == pytest.approx(6.0)
    assert place(allocate(works, Lanes(4), effort=2000), Lanes(4)).seconds == pytest.approx(6.0)


def test_levels_run_side_by_side():
    """Chains of 10 and 1, and of 1 and 10, on single devices: one level after the other takes 20 s, both at once 11."""
    works = [
        Work(f"{chain}{level}", 1, lambda width, items, s=seconds: float(s), (1,), {f"{chain}0": 0.0} if level else {})
        for chain, chained in (("a", (10, 1)), ("b", (1, 10)))
        for level, seconds in enumerate(chained)
    ]
    allocation = Allocation.of(works, 2)
    assert place(allocate(works, Lanes(2)), Lanes(2)).seconds == allocation.bound == 11.0
    assert allocation.seconds_of_levels == 20.0


def test_what_fits_nowhere_becomes_no_piece():
    assert allocate([Work("wide", 8, line(1.0, 1.0), (4, 8))], Lanes(2)) == () == allocate([], Lanes(2))


@pytest.mark.soak
@pytest.mark.parametrize("tasks", [4, 7, 10])
def test_towers_of_many_tasks_end_near_the_malleable_optimum(tasks):
    over = []
    for overhead in (20e-6, 100e-6):
        for devices in (8, 16, 32):
            works, lanes = towers(tasks, devices, overhead, whole=False), Lanes(devices, per_node=8)
            found = place(allocate(works, lanes, effort=40_000), lanes, effort=100)
            over.append(found.seconds / Allocation.of(works, devices).seconds_of_levels)
    assert median(over) <= 1.06 and max(over) <= 1.09
