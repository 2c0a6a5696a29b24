"""What many ranks saw becomes one sample: groups that do not meet are told apart, a disturbance leaves differences."""

import pytest

from planner.profiling.measurement import MeasuredSample, Measurement, TimeSpan, collective_seconds
from planner.profiling.profile_assembly import fsdp_overhead
from planner.profiling.run_measurements import sample_values


def test_a_collective_begins_when_its_last_rank_comes():
    assert collective_seconds([TimeSpan(0.0, 5.0), TimeSpan(4.0, 5.0)]) == pytest.approx(1.0)
    assert collective_seconds([TimeSpan(-320e-6, 0.0), TimeSpan(-20e-6, 0.0)]) == pytest.approx(
        20e-6
    )  # GPUs: the last to come waits least


def test_groups_that_run_at_once_are_told_apart():
    """One takes ten seconds, and another begins late and takes a twentieth of one: they never met."""
    piece = Measurement("", "all_gather", (2, 1024), 0)
    long, short = [TimeSpan(0.0, 10.0)], [TimeSpan(9.9, 9.95)]
    assert sample_values(piece, [long, long, short, short]) == pytest.approx(((10.0 + 0.05) / 2,))


def test_what_fsdp_adds_is_seen_in_rounds_of_any_speed():
    """Other rounds of the plain layer were slower than those in which both were measured."""

    def sample(kind, number, seconds):
        return MeasuredSample("", kind, (64,), number, (seconds, 2 * seconds))

    plain = [sample("layer", number, 0.010 if number % 3 == 0 else 0.013) for number in range(9)]
    wrapped = [sample("held", number, 0.011) for number in (0, 3, 6)]
    unit = fsdp_overhead(plain, wrapped, 2)
    assert (unit.forward_ms, unit.backward_ms) == pytest.approx((0.5, 1.0))
