"""The functions that other programs use."""

import pytest

from planner import files, pipeline
from planner.errors import InputError
from planner.specs.base import with_fields


@pytest.fixture(scope="module")
def plan():
    return pipeline.solve("demo-cpu-4").plan


def test_a_written_plan_loads_verifies_and_simulates(plan, tmp_path):
    files.write(tmp_path / "plan.yaml", plan)
    assert pipeline.read_plan(tmp_path / "plan.yaml") == plan
    (score,) = pipeline.verify(plan)
    assert score.step_seconds == pytest.approx(plan.outcome.value, rel=1e-8)
    assert pipeline.simulate(plan)[0].step_seconds == score.step_seconds


def test_an_illegal_plan_is_not_verified(plan):
    (step,) = plan.steps
    with pytest.raises(InputError, match="assigned nowhere"):
        pipeline.verify(with_fields(plan, steps=(with_fields(step, micro_batches=step.micro_batches[1:]),)))
