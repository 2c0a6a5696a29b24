"""A pipeline that somebody measured comes out as it was, from its passes and its sends alone."""

from statistics import median

import pytest

from benchmarks.measured_pipeline import FILE, left_out, own, read, simulated


@pytest.fixture
def measured(shared):
    return shared / "data" / FILE


def test_iterations_take_what_their_passes_say(measured):
    errors = [abs(error) for error in own(read(measured))]
    assert median(errors) < 0.005 and max(errors) < 0.01


def test_an_iteration_is_told_by_the_others(measured):
    assert median(abs(error) for error in left_out(read(measured))) < 0.01


def test_equal_passes_and_no_sends_take_what_1f1b_takes():
    stages, count = 3, 5
    passes = {(phase, row, stage): 1.0 for phase in "FB" for row in range(count) for stage in range(stages)}
    assert simulated(passes, (0.0, 0.0)) == pytest.approx(2 * (count + stages - 1))


def test_a_send_that_holds_its_stage_is_waited_for():
    passes = {(phase, row, stage): 1.0 for phase in "FB" for row in range(4) for stage in range(2)}
    assert simulated(passes, (0.5,)) > simulated(passes, (0.0,))
