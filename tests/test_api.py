"""The stable names of the package."""

import pytest

import planner
from planner import files
from planner.errors import InputError
from planner.plan.expand import expand
from planner.specs.base import changed
from planner.specs.inputs import Options


@pytest.fixture(scope="module")
def plan():
    return planner.solve("demo-cpu-4", Options()).plan


def test_a_written_plan_loads_verifies_and_simulates(plan, tmp_path):
    files.write(tmp_path / "plan.yaml", plan)
    assert planner.load(tmp_path / "plan.yaml") == plan
    (score,) = planner.verify(plan)
    assert score.value == pytest.approx(plan.outcome.value, rel=1e-8)
    assert planner.simulate(plan)[0].value == score.value


def test_tasks_of_the_ranks_are_the_expansion(plan):
    of_ranks = {task.id for rank in range(plan.size) for task in planner.tasks(plan, rank)}
    assert of_ranks == {task.id for task in expand(plan)}


def test_an_illegal_plan_is_not_verified(plan):
    (step,) = plan.steps
    with pytest.raises(InputError, match="assigned nowhere"):
        planner.verify(changed(plan, steps=(changed(step, micro_batches=step.micro_batches[1:]),)))


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute"):
        planner.nothing  # noqa: B018
