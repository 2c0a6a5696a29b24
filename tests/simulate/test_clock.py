"""Invariants of the event clock, transfers whose times are known exactly, and its two implementations compared."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plan.tasks.ragged_array import RaggedArray
from planner.simulate import clock, compiled_clock
from planner.simulate.activities import NO_ACTIVITY, ActivityBuilder
from tests.examples import examples
from tests.simulate.activity_sets import activity_sets, lane_of


def start_and_end_times(builder: ActivityBuilder):
    times, ended = clock.run_in_python(builder.build())
    assert ended.all()
    return times.starts.tolist(), times.ends.tolist()


# ------------------------------------------------------------------------------------------- compiled and in Python


@pytest.mark.slow
@pytest.mark.skipif(compiled_clock.LIB is None, reason="the clock was not compiled")
@examples(200)
@given(activity_sets())
def test_both_forms_give_the_same_bits(activities):
    (times, ended), (expected, expected_ended) = (
        compiled_clock.run_compiled(compiled_clock.LIB, activities),
        clock.run_in_python(activities),
    )
    assert ended.tolist() == expected_ended.tolist()
    for mine, theirs in zip(times, expected, strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_without_the_library_the_clock_runs_in_python(monkeypatch):
    built = ActivityBuilder()
    built.add(2.0)
    monkeypatch.setattr(compiled_clock, "LIBRARY", compiled_clock.LIBRARY.with_name("nowhere.so"))
    monkeypatch.setattr(compiled_clock, "LIB", compiled_clock.load_library())
    assert compiled_clock.LIB is None
    assert compiled_clock.run_activities(built.build())[0].ends.tolist() == [2.0]


def test_nothing_takes_no_time():
    times, ended = compiled_clock.run_activities(ActivityBuilder().build())
    assert [len(each) for each in (*times, ended)] == [0, 0, 0, 0]


# ------------------------------------------------------------------------------------------------------- of all runs


@given(activity_sets(circles=False))
def test_no_shorter_than_the_longest_chain_and_the_busiest_lane(activities):
    times, ended = clock.run_in_python(activities)
    assert ended.all()
    seconds, last = activities.seconds.tolist(), times.ends.max(initial=0.0)
    chain: list[float] = []
    for i in range(activities.count):
        queued = [int(activities.queued_by[i])] if activities.queued_by[i] != NO_ACTIVITY else []
        chain.append(seconds[i] + max((chain[j] for j in (*activities.after[i], *queued)), default=0.0))
        assert times.ends[i] >= chain[i] - 1e-9
    for lane in range(activities.lane_count):
        assert last >= sum(activities.share[i] * seconds[i] for i in lane_of(activities, lane)) - 1e-9


@pytest.mark.slow
@given(activity_sets(circles=False))
def test_a_lane_holds_no_more_than_one_and_each_sharer_once(activities):
    times, _ = clock.run_in_python(activities)
    for lane in range(activities.lane_count):
        held = lane_of(activities, lane)
        for now in times.starts[held]:
            running = [i for i in held if times.starts[i] <= now < times.ends[i]]
            assert sum(activities.share[i] for i in running) <= 1 + 1e-6
            sharers = [activities.sharer[i] for i in running if activities.sharer[i] != NO_ACTIVITY]
            assert len(set(sharers)) == len(sharers)


@pytest.mark.slow
@given(activity_sets(circles=False))
def test_bytes_over_a_link_are_no_more_than_it_carries(activities):
    """In any time between two events: those that were moving all of that time moved no more than bandwidth x time."""
    times, _ = clock.run_in_python(activities)
    begun = times.starts + activities.seconds
    for link, bandwidth in enumerate(activities.bandwidth):
        over = [i for i in range(activities.count) if activities.bytes[i] and link in activities.links[i]]
        for first, last in itertools.product(begun[over], times.ends[over]):
            inside = [i for i in over if first <= begun[i] and times.ends[i] <= last]
            moved = sum(activities.bytes[i] * activities.links[i].count(link) for i in inside)
            assert moved <= bandwidth * max(0.0, last - first) * (1 + 1e-6) + 1e-6


@pytest.mark.slow
@given(activity_sets(circles=False))
def test_a_cause_ends_when_what_it_lets_start_starts(activities):
    times, _ = clock.run_in_python(activities)
    for i, cause in enumerate(times.causes):
        assert times.starts[i] == (times.ends[cause] if cause != NO_ACTIVITY else 0.0)


@given(activity_sets(circles=False), st.sampled_from((0.5, 2.0, 4.0)))
def test_all_lengths_in_another_unit_give_all_times_in_it(activities, unit):
    """Seconds and bytes times a power of two: the same events in the same order, to the bit."""
    scaled = replace(activities, seconds=activities.seconds * unit, bytes=activities.bytes * unit)
    (times, _), (other, _) = clock.run_in_python(activities), clock.run_in_python(scaled)
    assert (times.ends * unit).tolist() == other.ends.tolist()
    assert times.causes.tolist() == other.causes.tolist()


# ------------------------------------------------------------------------------------------------------ exact lengths


def transfers(links: list[float], each: list[tuple[float, list[int]]]):
    """Ends of transfers (bytes, links) that all begin at once."""
    built = ActivityBuilder()
    for bandwidth in links:
        built.add_link(bandwidth)
    for size, over in each:
        built.set_transfer(built.add(0.0), size, over)
    return start_and_end_times(built)[1]


@given(st.integers(1, 12), st.integers(1, 50))
def test_equal_transfers_share_a_link_equally(count, size):
    assert transfers([4.0], [(float(size), [0])] * count) == pytest.approx([count * size / 4.0] * count)


def test_a_transfer_gets_what_another_leaves():
    """2 + 6 bytes over 2 B/s: both at 1 until the first is over at 2 s, then the second's last 4 at 2."""
    assert transfers([2.0], [(2.0, [0]), (6.0, [0])]) == [2.0, 4.0]


def test_the_slowest_link_sets_the_rate():
    """Over both links at 1 B/s, as link 1 lets it; beside it link 0 gives half of 10, never what the other leaves."""
    assert transfers([10.0, 1.0], [(3.0, [0, 1]), (10.0, [0])]) == [3.0, 2.0]


def test_disjoint_links_are_independent():
    assert transfers([2.0, 5.0], [(6.0, [0]), (5.0, [1])]) == [3.0, 1.0]


def test_bytes_move_once_the_seconds_are_over():
    built = ActivityBuilder()
    link = built.add_link(1.0)
    early, late = built.add(0.0), built.add(2.0)
    built.set_transfer(early, 4.0, [link])
    built.set_transfer(late, 1.0, [link])
    assert start_and_end_times(built)[1] == [5.0, 4.0]  # alone to 2 s, then half each: the late one's byte takes 2 s


@given(st.permutations(range(5)))
def test_a_lane_is_in_the_order_in_which_its_host_queued(order):
    """A host that launches in some order, quicker than the lane works: the lane follows it."""
    built = ActivityBuilder()
    host, device = built.add_lane(), built.add_lane()
    launches = {i: built.add(0.125, [host]) for i in order}
    kernels = {i: built.add(1.0, [device], queued_by=launches[i]) for i in range(5)}
    starts, _ = start_and_end_times(built)
    assert sorted(range(5), key=lambda i: starts[kernels[i]]) == list(order)


def test_activities_that_wait_in_a_circle_never_end():
    built = ActivityBuilder()
    lane = built.add_lane()
    first, second, free = built.add(1.0, [lane], [1]), built.add(1.0, [lane]), built.add(1.0)
    for _, ended in (clock.run_in_python(built.build()), compiled_clock.run_activities(built.build())):
        assert [bool(ended[i]) for i in (first, second, free)] == [False, False, True]


# -------------------------------------------------------------------------------------------------------- bad input


def one_activity(**fields):
    built = ActivityBuilder()
    lane, link = built.add_lane(), built.add_link(1.0)
    built.set_transfer(built.add(1.0, [lane]), 1.0, [link])
    return replace(built.build(), **fields)


def lists(*numbers: int) -> RaggedArray:
    return RaggedArray(np.array([0, len(numbers)]), np.array(numbers))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lanes": lists(1)}, "activity 0 names a lane that is not there"),
        ({"lanes": lists(0, 0)}, "names a lane twice"),
        ({"after": lists(-1)}, "names an activity that is not there"),
        ({"links": lists(3)}, "names a link"),
        ({"links": lists()}, "moves bytes over no link"),
        ({"queued_by": np.array([1])}, "queued by an activity that does not exist"),
        ({"seconds": np.array([np.nan])}, "seconds that are negative, or not finite"),
        ({"bytes": np.array([-1.0])}, "bytes that are negative"),
        ({"share": np.array([1.5])}, "share"),
        ({"bandwidth": np.zeros(1)}, "bandwidth"),
        ({"lanes": RaggedArray(np.array([0, 3]), np.array([0]))}, "not one for each"),
    ],
)
def test_invalid_activities_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        compiled_clock.run_activities(one_activity(**fields))
    compiled_clock.run_activities(one_activity())


@pytest.mark.parametrize("name", ["queued_by", "share", "sharer", "bytes"])
@pytest.mark.parametrize("length", [0, 2])
def test_arrays_that_are_too_short_or_too_long_are_refused(name, length):
    """The compiled clock reads as many as there are activities, or entries."""
    built = one_activity()
    compiled_clock.run_activities(built)
    dtype = getattr(built, name).dtype
    with pytest.raises(InputError, match=f"`{name}` has the shape"):
        compiled_clock.run_activities(replace(built, **{name: np.zeros(length, dtype)}))


@pytest.mark.parametrize("name", ["seconds", "bytes", "bandwidth"])
def test_arrays_of_more_dimensions_are_refused(name):
    with pytest.raises(InputError, match=f"`{name}` has the shape"):
        compiled_clock.run_activities(one_activity(**{name: np.ones((1, 2))}))


def test_seconds_of_more_than_the_activities_are_refused():
    with pytest.raises(InputError, match="has the shape"):
        compiled_clock.run_activities(one_activity(seconds=np.ones(2)))
