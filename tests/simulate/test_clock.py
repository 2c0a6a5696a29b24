"""Invariants of the event clock, and its two implementations compared."""

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
def test_a_cause_ends_when_what_it_lets_start_starts(activities):
    times, _ = clock.run_in_python(activities)
    for i, cause in enumerate(times.causes):
        assert times.starts[i] == (times.ends[cause] if cause != NO_ACTIVITY else 0.0)


@given(activity_sets(circles=False), st.sampled_from((0.5, 2.0, 4.0)))
def test_all_lengths_in_another_unit_give_all_times_in_it(activities, unit):
    """Seconds times a power of two: the same events in the same order, to the bit."""
    scaled = replace(activities, seconds=activities.seconds * unit)
    (times, _), (other, _) = clock.run_in_python(activities), clock.run_in_python(scaled)
    assert (times.ends * unit).tolist() == other.ends.tolist()
    assert times.causes.tolist() == other.causes.tolist()


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
    built.add(1.0, [built.add_lane()])
    return replace(built.build(), **fields)


def lists(*numbers: int) -> RaggedArray:
    return RaggedArray(np.array([0, len(numbers)]), np.array(numbers))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lanes": lists(1)}, "activity 0 names a lane that is not there"),
        ({"lanes": lists(0, 0)}, "names a lane twice"),
        ({"after": lists(-1)}, "names an activity that is not there"),
        ({"queued_by": np.array([1])}, "queued by an activity that does not exist"),
        ({"seconds": np.array([np.nan])}, "seconds that are negative, or not finite"),
        ({"share": np.array([1.5])}, "share"),
        ({"lanes": RaggedArray(np.array([0, 3]), np.array([0]))}, "not one for each"),
    ],
)
def test_invalid_activities_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        compiled_clock.run_activities(one_activity(**fields))
    compiled_clock.run_activities(one_activity())


@pytest.mark.parametrize("name", ["queued_by", "share", "sharer"])
@pytest.mark.parametrize("length", [0, 2])
def test_arrays_that_are_too_short_or_too_long_are_refused(name, length):
    """The compiled clock reads as many as there are activities, or entries."""
    built = one_activity()
    compiled_clock.run_activities(built)
    dtype = getattr(built, name).dtype
    with pytest.raises(InputError, match=f"`{name}` has the shape"):
        compiled_clock.run_activities(replace(built, **{name: np.zeros(length, dtype)}))


def test_arrays_of_more_dimensions_are_refused():
    with pytest.raises(InputError, match="`seconds` has the shape"):
        compiled_clock.run_activities(one_activity(seconds=np.ones((1, 2))))


def test_seconds_of_more_than_the_activities_are_refused():
    with pytest.raises(InputError, match="has the shape"):
        compiled_clock.run_activities(one_activity(seconds=np.ones(2)))
