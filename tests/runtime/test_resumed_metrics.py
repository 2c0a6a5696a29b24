"""A run that goes on has each step once in its metrics, and leaves nothing of what was killed while it was written."""

import json
import os
import signal

import pytest

from planner.errors import RunFailed
from planner.files.write import atomic_write
from planner.launch.processes import launch
from planner.runtime import RunOptions
from planner.runtime.checkpoint import accepting
from planner.runtime.checkpoint.checkpoint_index import NEW_STATES
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.execute.training_loop import run_on_rank
from planner.runtime.measure.metrics_file import metrics_writer
from planner.runtime.run_result import StepResult
from tests.runtime.training_worlds import spread

STEP = StepResult(loss=1.0, tokens=6, seconds=2.0, measured=(), peak_bytes=(None,))


def lines_of(*steps):
    return "".join(f'{{"step": {step}, "loss": 2.0}}\n' for step in steps)


@pytest.mark.parametrize(
    ("before", "done", "left"),
    [
        (lines_of(1, 2, 3), 3, lines_of(1, 2, 3)),
        (lines_of(1, 2, 3, 4, 5), 3, lines_of(1, 2, 3)),
        (lines_of(1, 2, 3) + '{"step": 4, "lo', 2, lines_of(1, 2)),
        (lines_of(1, 2, 3), 0, ""),
        (lines_of(3, 4, 1, 2, 3), 1, lines_of(3, 4, 1)),  # another run's are in front
        (lines_of(1, 2) + "a note\n" + lines_of(3, 4), 1, lines_of(1, 2) + "a note\n"),
        (lines_of(4, 5), 5, lines_of(4, 5)),
        ("", 3, ""),
        (lines_of(1, 2, 3), None, lines_of(1, 2, 3)),  # a run of its own
    ],
)
def test_steps_that_are_trained_again_are_cut_off(tmp_path, before, done, left):
    path = tmp_path / "metrics.jsonl"
    path.write_text(before)
    inode = path.stat().st_ino
    with metrics_writer(path, done) as note:
        assert path.read_text() == left
        note((done or 0) + 1, STEP)
    assert path.read_text().startswith(left) and len(path.read_text().splitlines()) == len(left.splitlines()) + 1
    assert path.stat().st_ino == inode  # whoever follows the file still does


def killed_as_it_saves(worker, plan, options, saves):
    """Every rank dies where it would write its so many-th file, of which half is on the disk then."""
    write, left = accepting.write_shards, [saves]

    def dying(path, shards, values):
        left[0] -= 1
        if not left[0]:
            with atomic_write(path) as out:
                out.write(b"half")
                out.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return write(path, shards, values)

    accepting.write_shards = dying
    run_on_rank(worker, plan, options)


@pytest.mark.soak
def test_runs_that_are_killed_while_they_save_leave_each_step_once_and_nothing_else(tmp_path):
    plan, saved = spread(2, dp=2, zero=1, rows=[[(0,), (1,)]] * 2), tmp_path / "saved"
    options = RunOptions(steps=8, save=saved, resume=saved, save_every=2, metrics=tmp_path / "metrics.jsonl")
    for saves in (1, 2):
        with pytest.raises(RunFailed, match="killed by SIGKILL"):
            launch(killed_as_it_saves, 2, plan, resolve_resume(options), saves)
        assert any(path.name.endswith(".unfinished") for path in saved.rglob(".*"))
    launch(run_on_rank, 2, plan, resolve_resume(options))
    lines = [json.loads(line) for line in options.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, 9)]
    assert not any(path.name.endswith(".unfinished") for path in tmp_path.rglob(".*"))
    assert not (saved / NEW_STATES).exists()
