"""From a job to a plan: the same bytes in every process, whatever the order of its sets, and told batch by batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.plan.legal.plan_laws import violations
from planner.specs.inputs import JobOptions, load_job
from tests.examples import soaked

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden/sequence_groups"
PROGRAM = "import sys; from planner import files, pipeline; print(files.dump(pipeline.solve(sys.argv[1]).plan), end='')"


@pytest.mark.slow
@pytest.mark.parametrize("name", soaked(["demo", "flexsp-gpt-7b"], ["demo"]))
@pytest.mark.parametrize("seed", soaked(["0", "7"], ["7"]))
@pytest.mark.every(2)
def test_every_process_makes_the_same_bytes(name, seed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PROGRAM, str(GOLDEN / name / "job.yaml")]
    made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True).stdout
    assert made == (GOLDEN / name / "plan.yaml").read_bytes()


@pytest.mark.slow
def test_deciding_twice_is_deciding_once():
    inputs = load_job(str(GOLDEN / "demo/job.yaml"), JobOptions(batches=2))
    once, again = pipeline.decide(inputs), pipeline.decide(inputs)
    assert files.dump(once.plan) == files.dump(again.plan)
    assert violations(once.plan) == []


@pytest.mark.slow
def test_batches_are_told_and_timed_one_by_one():
    heard: list[tuple[int, int]] = []
    inputs = load_job(str(GOLDEN / "demo/job.yaml"), JobOptions(batches=3))
    solved = pipeline.decide(inputs, lambda done, of, _: heard.append((done, of)))
    assert heard == [(0, 3), (1, 3), (2, 3)]
    assert len(solved.step_seconds) == len(solved.plan.steps) == 3
    assert solved.seconds == sum(solved.step_seconds)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["demo-cpu-4", "demo-vit-cpu-4", "flexsp-gpt-7b-a100x64"])
@pytest.mark.every(3)
def test_shipped_jobs_are_solved(job, tmp_path):
    plan = pipeline.solve(job, JobOptions(effort=1)).plan
    path = tmp_path / "plan.yaml"
    files.write(path, plan)
    assert pipeline.read_plan(path) == plan
    (s,) = pipeline.simulate(plan)
    assert s.step_seconds == pytest.approx(plan.outcome.value, rel=1e-8)
