"""A run that goes on has each step once in its metrics, and leaves nothing of what was killed while it was written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.files import write
from planner.runtime.measure.metrics_file import metrics_writer
from planner.runtime.run_result import StepResult
from tests.runtime.training_worlds import spread

ROOT = Path(__file__).parents[2]
STEP = StepResult(loss=1.0, tokens=6, seconds=2.0, measured=(), peak_bytes=(None,))
STEPS, KILLS = 12, 3


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


@pytest.fixture
def run(tmp_path):
    """A function that starts, or resumes, the run of a plan that saves behind every second step."""
    write(tmp_path / "plan.yaml", spread(2, dp=2, zero=1, dtype="float64", rows=[[(0,), (1,)]] * 2))
    command = [sys.executable, "-m", "planner", "run", tmp_path / "plan.yaml", f"--steps={STEPS}", "--no-ledger",
               f"--save={tmp_path / 'saved'}", f"--resume={tmp_path / 'saved'}", "--save-every=2",
               f"--metrics={tmp_path / 'metrics.jsonl'}"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return lambda: subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True, start_new_session=True)


def unfinished(folder):
    return {path for path in folder.rglob(".*") if path.name.endswith(".unfinished")}


@pytest.mark.slow
def test_runs_that_are_killed_while_they_save_leave_each_step_once_and_nothing_else(tmp_path, run):
    for _ in range(KILLS):
        left, process = unfinished(tmp_path), run()
        while process.poll() is None and not unfinished(tmp_path) - left:
            time.sleep(1e-4)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = run()
    errors = done.communicate()[1]
    assert done.returncode == 0, errors
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, STEPS + 1)]
    assert not unfinished(tmp_path) and not (tmp_path / "saved" / "states-new").exists()
