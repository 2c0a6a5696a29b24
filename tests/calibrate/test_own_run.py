"""A plan's own run is kept beside its framework's coefficients, and jobs that name the file are priced after it."""

from pathlib import Path

import numpy as np
import pytest

from planner import files, pipeline
from planner.calibrate import calibrated_to_run, known_runs, write_own_runs
from planner.calibrate.own_run import standard_deviations
from planner.errors import InputError
from planner.scoring import described_run, nearest_run, read_plan, throughput
from planner.scoring.nearest_run import OWN
from planner.specs.base import with_fields
from planner.specs.framework.own_runs import JOB_FACTS
from planner.specs.framework.software import Software
from planner.specs.inputs import JobOptions, job_run, load_job
from planner.specs.library import read_named
from tests.examples import soaked

GOLDEN = Path("tests/golden/parallel_search/llama-3-8b-h100x64")
pytestmark = pytest.mark.slow  # a score for each coefficient


@pytest.fixture(scope="module")
def plan():
    return read_plan(GOLDEN / "plan.yaml")


def job_with(software, folder):
    """The golden job with a software file of one's own."""
    text = (GOLDEN / "job.yaml").read_text()
    path = folder / "job.yaml"
    path.write_text(
        text.replace("./cluster.yaml", str((GOLDEN / "cluster.yaml").absolute())) + f"software: {software}\n"
    )
    return str(path)


@pytest.mark.parametrize("factor", soaked([0.8, 1.25], [1.25]))
def test_a_plan_is_predicted_nearer_to_its_run_and_no_further(plan, factor):
    right = plan.prediction.step_seconds
    made = calibrated_to_run(plan, right * factor)
    assert made.predicted == made.run.predicted == pytest.approx(right)
    assert min(right, made.run.measured) < made.after < max(right, made.run.measured)
    assert abs(np.log(made.after / made.run.measured)) < 0.3 * abs(np.log(factor))


@pytest.mark.soak
def test_a_step_beyond_the_peak_is_refused_and_one_far_off_is_doubted(plan, caplog):
    peak = throughput(plan, 1.0).mfu  # seconds of the step at an MFU of 1
    with pytest.raises(InputError, match="times the peak"):
        calibrated_to_run(plan, 0.99 * peak)
    predicted = calibrated_to_run(plan, 1.01 * peak).predicted
    caplog.clear()
    run = calibrated_to_run(plan, 1.1 * predicted).run
    assert not caplog.records
    assert standard_deviations(with_fields(run, measured=predicted)) == 0.0
    calibrated_to_run(plan, 10 * predicted)
    assert "is it the time of one step" in caplog.text


def test_a_job_is_planned_with_what_its_run_told_and_a_second_run_is_added(plan, tmp_path):
    first = calibrated_to_run(plan, 1.2 * plan.prediction.step_seconds)
    (path,) = write_own_runs(first, plan, tmp_path)
    kept, shipped = files.read(path, Software), read_named(plan.uses.software.name, Software)[0]
    assert with_fields(kept, own_runs=()) == shipped and kept.own_runs == known_runs(plan, tmp_path) == (first.run,)

    job = job_with(path, tmp_path)
    again = pipeline.solve(job).plan
    assert again.layouts == plan.layouts and again.prediction.step_seconds == pytest.approx(first.after, rel=1e-3)
    assert again.uses.prices.spread < plan.uses.prices.spread and again.outcome.gap < 0.01
    nearest = nearest_run(again)
    assert nearest and nearest.source == OWN and nearest.distance == pytest.approx(0.0, abs=1e-2)

    second = calibrated_to_run(again, 1.21 * plan.prediction.step_seconds, known_runs(plan, tmp_path))
    assert second.run.predicted == pytest.approx(first.run.predicted, rel=1e-3) and len(second.known) == 2
    assert first.after < second.after < second.run.measured
    write_own_runs(second, again, tmp_path)
    assert files.read(path, Software).own_runs == second.known


def test_a_job_says_what_its_plan_runs(plan):
    stated, run = job_run(load_job(str(GOLDEN / "job.yaml"), JobOptions())), described_run(plan)[0]
    assert (stated.device, stated.dtype, stated.software) == (run.device, run.dtype, run.software)
    for name in JOB_FACTS - {"device", "dtype"}:
        assert getattr(stated, name) == pytest.approx(getattr(run, name), rel=0.01)


def test_measured_prices_know_no_coefficients():
    timed = read_plan(Path("tests/golden/by_hand/encoder-in-bubbles/plan.yaml"))
    assert not timed.uses.prices.rates
    with pytest.raises(InputError, match="measured"):
        calibrated_to_run(timed, 1.0)


def test_a_framework_cannot_name_a_file_elsewhere(plan, tmp_path):
    software = with_fields(plan.uses.software, name="../../elsewhere")
    named = with_fields(plan, uses=with_fields(plan.uses, software=software))
    with pytest.raises(InputError, match="no plain name") as raised:
        known_runs(named, tmp_path)
    assert raised.value.where == "uses.software.name"
