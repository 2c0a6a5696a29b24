"""A loss that is no number ends the run at its task, whatever else the run computes."""

import math
from dataclasses import replace

import pytest

from planner.errors import RunFailed
from planner.launch import BegunTask
from planner.launch.processes import launch
from planner.launch.worker import Worker, joined_world
from planner.runtime import RunOptions, TrainingOptions, run
from planner.runtime.execute.early_stop import require_finite
from planner.runtime.execute.task_executor import RankStepResult
from planner.runtime.state.gradient_norm import GradientClipping
from tests.runtime.training_worlds import spread


def result(loss, lost_in=""):
    return RankStepResult(loss, 1.0, (), (), 5, None, {}, lost_in=lost_in)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_it_ends_at_the_task_whose_loss_it_is(loss):
    begun = []
    worker = Worker(0, 1, 0, "cpu", 1, lambda kind, value: begun.append((kind, value)))
    with pytest.raises(RunFailed, match=f"the loss is {loss} in step 7") as raised:
        require_finite(worker, result(loss, "llm/F/3"), 7)
    assert (raised.value.where, begun) == ("step 7", [("task", BegunTask("llm/F/3"))])
    require_finite(worker, result(1.5), 7)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"dp": 2}, {"pp": 2}])
def test_a_run_without_clipping_or_metrics_ends_too(layout):
    options = RunOptions(steps=5, training=TrainingOptions(1e30))
    with pytest.raises(RunFailed, match=r"the loss is (nan|inf) in step [23]") as raised:
        run(spread(2, zero=1, rows=[[(0, 1)]] * 2, **layout), options, lambda _: None)
    assert "rank " in raised.value.where and "/F/" in raised.value.where


def lost_on_one(worker):
    with joined_world(worker, timeout_s=30):
        loss = math.nan if worker.rank == 1 else 1.5
        step = replace(result(loss, "llm/F/0"), clipped=GradientClipping(math.nan))
        require_finite(worker, step, 4)


@pytest.mark.slow
def test_the_loss_is_named_where_gradients_are_no_numbers_either():
    with pytest.raises(RunFailed, match="the loss is nan in step 4") as raised:
        launch(lost_on_one, 2)
    assert raised.value.where == "rank 1, task llm/F/0, step 4"
