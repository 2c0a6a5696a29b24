"""Errors of published records after one run are those of coefficients that are likeliest after it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from planner.calibrate.after_one_run import alike, errors_after_one_run, source_errors
from planner.calibrate.framework_fit import predicted_seconds
from planner.calibrate.timed_cases import machines_of_cases
from planner.specs.framework.own_runs import after_runs
from tests.calibrate.made_cases import grid, truth
from tests.specs.test_after_runs import RUNS, left_of
from tests.specs.test_after_runs import alike as alike_runs


@given(RUNS.filter(lambda runs: len(runs) > 1))
def test_errors_of_other_runs_are_those_with_the_shifts(runs):
    same = np.array([[alike_runs(one, other) for other in runs] for one in runs])
    slopes, errors = np.array([[*run.slopes.values()] for run in runs]), np.array([run.log_error for run in runs])
    after = errors_after_one_run(slopes, same, errors)
    for at, run in enumerate(runs):
        for to, other in enumerate(runs):
            if at != to:
                assert after[at, to] == pytest.approx(left_of(other, after_runs([run], other.ran, other.tflops)))
    assert np.isnan(np.diag(after)).all()


def test_a_run_tells_nothing_of_other_frameworks_and_most_of_equal_jobs():
    one, other = grid("one")[:2]
    same = alike([one, one, replace(other, software="other")])
    assert same[0, 1] == 1.0 and same[0, 2] == 0.0


def test_runs_that_took_what_their_possible_setups_take_in_the_mean_leave_no_error():
    cases = [replace(each, other_setups=(replace(each.setup, micro_batch=2),)) for each in grid("one")[:6]]
    seconds = predicted_seconds(cases, machines_of_cases(cases), truth())
    ran = [replace(each, seconds=float(value)) for each, value in zip(cases, seconds, strict=True)]
    assert np.nanmax(np.abs(source_errors(ran, truth()))) < 1e-12
