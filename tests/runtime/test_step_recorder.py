"""A run whose rank 1 has a slow loader, recorded: what it says of itself, and what a replay of its recording says."""

import time

import pytest

from planner.launch.processes import launch
from planner.ledger import SlowRankWatch
from planner.plan.task import LOADER
from planner.runtime.execute.training_loop import run_on_rank
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


@pytest.mark.slow
def test_a_slow_loader_is_named_by_the_run_and_by_its_recording(tmp_path):
    plan = spread(2, dp=2, dtype="float32", rows=[[(0,), (1,)]])
    heard = []
    launch(with_slow_loader, 2, plan, RunOptions(steps=STEPS, record=tmp_path), on_message=lambda _, m: heard.append(m))
    assert [len(step.work) for step in heard] == [2] * STEPS
    assert all(step.work[1][LOADER] >= LATE_S for step in heard)
    watch = SlowRankWatch([])
    watch.expected = [[{"forward": 1.0, "backward": 2.0, "update": 1.0}] * 2]
    named = [slow for step in heard for slow in watch.see(step.step, step.work)]
    assert (1, LOADER) in [(slow.rank, slow.cause.what) for slow in named]

    answer = replay_traces([tmp_path])
    assert len(answer.replay.steps) == 2 * 8
    assert answer.replay.copied.launched == answer.replay.copied.operations > 0
    first = answer.stragglers[0]
    assert (first.rank, first.slow, first.cause.what) == (1, True, LOADER)
