"""What measured runs tell of a job is the normal distribution conditioned on them, and says nothing beyond it."""

from math import log, log2

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.framework.own_runs import SHARED, UNEXPLAINED, OwnRun, after_runs, correlation, shifted_timing
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import WIDTHS, TimingCoefficients
from planner.specs.library import read_named
from planner.specs.shipped_runs import shipped_runs

NAMES = list(WIDTHS)
PEAKS = shipped_runs().tflops
RAN = st.sampled_from(sorted({run for runs in shipped_runs().runs.values() for run in runs}))
SLOPES = st.lists(st.floats(-1, 1), min_size=len(NAMES), max_size=len(NAMES))


def own_run(ran, slopes, error):
    slopes = dict(zip(NAMES, slopes, strict=True))
    seconds = {"predicted": float(np.exp(error)), "measured": 1.0}
    return OwnRun(plan="made", tflops=PEAKS[ran.device], slopes=slopes, **ran._asdict(), **seconds)


RUNS = st.lists(st.builds(own_run, RAN, SLOPES, st.floats(-0.5, 0.5)), min_size=1, max_size=4)


def of_job(runs, run):
    return after_runs(runs, run.ran, run.tflops)


def alike(one, other):
    return correlation(one.ran, other.ran, abs(log2(one.tflops / other.tflops)))


def left_of(run, told):
    """The error of a run with the coefficients that are likeliest for its job."""
    return run.log_error + sum(run.slopes[name] * shift for name, shift in told.shifts.items())


@given(RUNS, st.builds(own_run, RAN, SLOPES, st.just(0.0)))
def test_shifts_and_deviations_are_those_of_the_joint_distribution(runs, job):
    """All coefficients of all runs and the job as one vector of a normal distribution, conditioned on the errors by the
    information form: another way to the same mean and variance.
    """
    every, size = [*runs, job], len(NAMES)
    widths, same = np.array([*WIDTHS.values()]), np.array([[alike(one, other) for other in every] for one in every])
    prior = np.kron(same, np.diag(widths**2)) + 1e-12 * np.eye(size * len(every))
    design = np.zeros((len(runs), size * len(every)))
    for at, run in enumerate(runs):
        design[at, at * size : (at + 1) * size] = [*run.slopes.values()]
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + UNEXPLAINED**2 * np.eye(len(runs)))
    mean = -gain @ np.array([run.log_error for run in runs])
    told = of_job(runs, job)
    assert [told.shifts[name] for name in NAMES] == pytest.approx(mean[-size:].tolist(), abs=1e-8)
    nearest = [*max(runs, key=lambda run: alike(run, job)).slopes.values()]
    covariance = (prior - gain @ design @ prior)[-size:, -size:]
    before = widths**2 @ np.square(nearest) + UNEXPLAINED**2
    assert told.narrowed**2 == pytest.approx((nearest @ covariance @ nearest + UNEXPLAINED**2) / before, abs=1e-6)


@given(RUNS, st.randoms())
def test_the_order_of_runs_does_not_matter(runs, random):
    other = random.sample(runs, len(runs))
    one, two = of_job(runs, runs[0]), of_job(other, runs[0])
    assert [one.shifts[name] for name in NAMES] == pytest.approx([two.shifts[name] for name in NAMES], abs=1e-9)


@given(RAN, SLOPES, st.floats(-0.5, 0.5))
def test_a_run_is_predicted_nearer_to_what_was_measured_and_not_beyond(ran, slopes, error):
    run = own_run(ran, slopes, error)
    left = left_of(run, of_job([run], run))
    assert left * error >= -1e-12 and abs(left) <= abs(error) + 1e-12
    assert of_job([run], run).narrowed <= 1.0


@given(RAN, SLOPES.filter(lambda slopes: max(map(abs, slopes)) > 0.1), st.floats(-0.3, 0.3))
def test_a_job_that_is_measured_again_and_again_is_predicted_as_it_was_measured(ran, slopes, error):
    run = own_run(ran, slopes, error)
    explained = sum((WIDTHS[name] * slope) ** 2 for name, slope in run.slopes.items())
    told = [of_job([run] * count, run) for count in (1, 4, 16)]
    for count, each in zip((1, 4, 16), told, strict=True):  # of an error, what noise in the mean of so many leaves
        assert left_of(run, each) == pytest.approx(error / (1.0 + count * explained / UNEXPLAINED**2), abs=1e-9)
    assert [each.narrowed for each in told] == sorted((each.narrowed for each in told), reverse=True)


@given(RAN, SLOPES, st.floats(-0.5, 0.5), st.integers(1, 6))
def test_what_a_run_tells_fades_with_distance_to_what_all_jobs_share(ran, slopes, error, doublings):
    run, distances = own_run(ran, slopes, error), (0, doublings, 60)
    at = [after_runs([run], ran._replace(ranks=ran.ranks * 2**each), run.tflops) for each in distances]
    sizes = [np.abs([*told.shifts.values()]).sum() for told in at]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(SHARED * sizes[0], rel=1e-6, abs=1e-12)
    assert [told.narrowed for told in at] == sorted(told.narrowed for told in at)


@given(RAN, SLOPES, st.floats(-0.5, 0.5), st.integers(2, 64))
def test_degrees_of_a_layout_change_nothing(ran, slopes, error, degree):
    run = own_run(ran, slopes, error)
    other = ran._replace(tp=degree, pp=2 * degree, cp=degree, ep=degree, zero=3)
    assert after_runs([run], other, run.tflops) == of_job([run], run)


@given(st.lists(RAN, min_size=2, max_size=12))
def test_likenesses_are_those_of_a_distribution(runs):
    made = [own_run(ran, [0.0] * len(NAMES), 0.0) for ran in runs]
    same = np.array([[alike(one, other) for other in made] for one in made])
    assert np.linalg.eigvalsh(same).min() >= -1e-9 and np.diag(same) == pytest.approx(1.0)


def test_no_runs_tell_nothing():
    ran = next(iter(shipped_runs().runs.values()))[0]
    assert after_runs([], ran, PEAKS[ran.device]) == ({}, 1.0)


def test_no_shifts_change_nothing_be_casts_more_than_all_of_a_kernel():
    timing = TimingCoefficients(cast=3.0, tp_exposed=1.0)
    assert shifted_timing(timing, dict.fromkeys(NAMES, 0.0)) == timing
    up = shifted_timing(timing, {"cast": 0.1, "tp_exposed": 0.1})
    assert (up.cast, up.tp_exposed) == (3.0, 1.0)


@pytest.mark.parametrize("changed", [{"slopes": {"speed": 1.0}}, {"seq": 0}, {"billions": -1.0}])
def test_what_cannot_have_run_is_refused_where_it_is_read(changed, tmp_path):
    run = own_run(next(iter(shipped_runs().runs.values()))[0], [0.0] * len(NAMES), 0.0)
    cells = msgspec.to_builtins(read_named("generic", Software)[0]) | {"own_runs": [msgspec.to_builtins(run) | changed]}
    (tmp_path / "own.yaml").write_text(files.dump(cells))
    with pytest.raises(InputError, match="own_runs"):
        files.read(tmp_path / "own.yaml", Software)


def test_an_error_is_of_predicted_over_measured():
    ran = next(iter(shipped_runs().runs.values()))[0]
    assert with_fields(own_run(ran, [0.0] * len(NAMES), 0.0), predicted=3.0, measured=2.0).log_error == log(1.5)
