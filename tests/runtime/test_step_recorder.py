"""A run whose rank 1 has a slow loader, and its recording."""

import time

import pytest

from planner.launch.processes import launch
from planner.plan.task import LOADER
from planner.runtime.execute.training_loop import run_on_rank
from planner.runtime.measure.step_recorder import RECORDED
from planner.runtime.run_options import RunOptions
from planner.runtime.state.rank_state import BatchLoader
from planner.workflows.replaying import replay_traces
from tests.runtime.training_worlds import spread

STEPS = 12
LATE_S = 0.15


def with_slow_loader(worker, plan, options):
    """A run on one rank, whose loader sleeps on rank 1."""
    load = BatchLoader.batch

    def slow(*arguments, **named):
        time.sleep(LATE_S * (worker.rank == 1))
        return load(*arguments, **named)

    BatchLoader.batch = slow
    return run_on_rank(worker, plan, options)


@pytest.mark.soak
def test_a_slow_loader_is_in_what_the_run_says_and_in_its_recording(tmp_path):
    """Whether that is much beside the rest depends on what else the machine does; where a rank is named, it is this."""
    plan = spread(2, dp=2, dtype="float32", rows=[[(0,), (1,)]])
    heard = []
    launch(with_slow_loader, 2, plan, RunOptions(steps=STEPS, record=tmp_path), on_message=lambda _, m: heard.append(m))
    assert [len(step.work) for step in heard] == [2] * STEPS
    assert all(step.work[1][LOADER] >= LATE_S for step in heard)
    assert all({*own} == {LOADER, "forward", "backward", "update"} for step in heard for own in step.work)

    answer = replay_traces([tmp_path])
    assert len(answer.replay.steps) == 2 * RECORDED
    assert answer.replay.copied.launched == answer.replay.copied.operations > 0
    host = answer.replay.graphs[1].trace.host
    loading = host.name == host.names.index("load_batch")
    assert loading.sum() == RECORDED
    assert (host.end[loading] - host.start[loading] >= LATE_S).all()
    slow = [late for late in answer.stragglers if late.slow]
    assert all((late.rank, late.cause.what) == (1, LOADER) for late in slow if late.cause.what == LOADER)
