"""The file of a rank's memory: when it is written, and that it disturbs nothing."""

from inspect import signature
from pathlib import Path

import pytest
import torch

from planner.errors import InputError
from planner.runtime import RunOptions, run
from planner.runtime.__main__ import options_in, parser
from planner.runtime.measure.gpu_memory import HISTORY_ENTRIES, CudaMemoryHistory, MemorySnapshot
from tests.plans import sharded_plan


class Asked:
    """A history that knows how it was asked, and nothing else."""

    def __init__(self):
        self.asked = []

    def start(self):
        self.asked.append("start")

    def stop(self):
        self.asked.append("stop")


class Faked(Asked):
    """Writes what it was asked so far."""

    def write(self, path):
        path.write_text(" ".join(self.asked))


def ended_by(error, folder):
    snapshot = MemorySnapshot(folder, 3, Faked())
    with pytest.raises(type(error)) as raised, snapshot.recording():
        snapshot.begin_step(last=False)
        snapshot.begin_step(last=True)
        raise error
    return raised.value


def test_a_run_that_ends_well_is_written_to_a_folder_that_is_made(tmp_path):
    snapshot = MemorySnapshot(tmp_path / "a" / "b", 3, Faked())
    with snapshot.recording():
        for last in (False, False, True):
            snapshot.begin_step(last)
    (path,) = (tmp_path / "a" / "b").iterdir()
    assert path.name == "rank-3.pickle" and path.read_text() == "start stop stop start"


def test_memory_that_runs_out_is_written_and_still_the_error(tmp_path):
    error = torch.OutOfMemoryError("too much")
    assert ended_by(error, tmp_path) is error
    assert (tmp_path / "rank-3.pickle").read_text() == "start stop start"
    (tmp_path / "file").touch()
    assert ended_by(error, tmp_path / "file") is error


def test_another_failure_writes_nothing(tmp_path):
    ended_by(ValueError("no"), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_without_a_folder_nothing_is_recorded():
    faked = Faked()
    snapshot = MemorySnapshot(None, 0, faked)
    with snapshot.recording():
        snapshot.begin_step(last=True)
    assert faked.asked == []


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    snapshot = MemorySnapshot(tmp_path / "file", 0, Faked())
    with pytest.raises(InputError, match="cannot write the file") as raised, snapshot.recording():
        pass
    assert raised.value.where == str(tmp_path / "file" / "rank-0.pickle") and raised.value.fix


def test_torch_takes_what_it_is_given():
    """Its names are private: here it shows when they change."""
    record = signature(torch.cuda.memory._record_memory_history)
    record.bind("all", stacks="python", max_entries=HISTORY_ENTRIES)
    record.bind(None)
    signature(torch.cuda.memory._dump_snapshot).bind("path")


def test_recording_begins_with_nothing_from_before(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda kept, **how: asked.append(kept))
    CudaMemoryHistory().start()
    assert asked == [None, "all"]


def test_on_the_cpu_it_is_refused_before_anything_is_launched(tmp_path):
    plan = sharded_plan(2, [[(0, 2)]])
    with pytest.raises(InputError, match="torch counts no memory of the CPU") as refused:
        run(plan, RunOptions(memory_snapshot=tmp_path / "new"), print)
    assert (refused.value.where, refused.value.fix) == ("--memory-snapshot", "leave it out")
    assert not [*tmp_path.iterdir()]


def test_under_torchrun_it_is_the_same_option():
    given = vars(parser().parse_args(["plan.yaml", "--memory-snapshot", "here"]))
    del given["plan"]
    assert options_in(given).memory_snapshot == Path("here")
