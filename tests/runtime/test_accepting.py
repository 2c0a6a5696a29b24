"""A kill between any two things that saving does to the disk leaves the checkpoint before, or the new one, whole."""

import os
import shutil

import pytest
import torch

from planner.errors import RunFailed
from planner.files import path_exists
from planner.models.checkpoints.stored_shards import HeldShard
from planner.models.tensor_region import whole_region
from planner.runtime import RunOptions
from planner.runtime.checkpoint import accepting
from planner.runtime.checkpoint.accepting import WrittenFile, accept, write_file
from planner.runtime.checkpoint.checkpoint_index import (
    INDEX_FILE,
    NEW_STATES,
    SavedStates,
    checkpoint_index,
    file_digest,
    read_index,
)
from planner.runtime.checkpoint.kept_checkpoints import kept_steps, step_folder
from planner.runtime.checkpoint.resume_checks import require_save_folder, resolve_resume
from planner.runtime.checkpoint.stored_states import stored_states
from planner.runtime.run_options import Retention
from tests.runtime.training_worlds import spread

PLAN = spread(2, dp=2, zero=1, rows=[[(0, 1)]] * 2)
OF_RUN = checkpoint_index(PLAN, RunOptions(steps=9), SavedStates(0, "states-a", {}))
SHAPE = (4, 6)
CALLS = ("replace", "fsync", "unlink", "rmdir", "mkdir")


def save(folder, steps, last=1):
    """As two ranks do it, each with half of a tensor of this number."""
    halves = [whole_region(SHAPE).select(0, [span]) for span in ((0, 2), (2, 4))]
    shards = [{"llm/weights/w": HeldShard(half, torch.full(half.shape, float(steps)))} for half in halves]
    files = [write_file(folder, rank, of_rank, steps) for rank, of_rank in enumerate(shards)]
    return accept(folder, OF_RUN, steps, files, Retention(last))


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """A kill leaves what was written before it, synced or not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def killed(does, number):
    """Whether a process that does it is killed before its so many-th call that changes the disk."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = [number]

    def counted(call):
        def calling(*args, **how):
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return call(*args, **how)

        return calling

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    try:
        does()
    finally:
        os._exit(0)


def require_whole(folder):
    """The steps of the checkpoint there, whose bytes are those that were saved."""
    index = read_index(folder)
    assert len(index.digests) == 2
    assert all(file_digest(folder / index.states / name) == digest for name, digest in index.digests.items())
    assert torch.equal(stored_states(folder, index).read("llm/weights/w"), torch.full(SHAPE, float(index.steps)))
    return index.steps


@pytest.mark.slow
@pytest.mark.parametrize(("before", "last"), [(0, 1), (2, 1), (2, 2)])
@pytest.mark.every(3)
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path, before, last):
    for steps in range(1, before + 1):
        save(tmp_path / "begun", steps, last)
    (tmp_path / "begun").mkdir(exist_ok=True)
    found, number = [], 0
    while True:
        folder = tmp_path / f"kill-{number}"
        shutil.copytree(tmp_path / "begun", folder)
        dies = killed(lambda: save(folder, before + 1, last), number)  # noqa: B023
        there = path_exists(folder / INDEX_FILE, "")
        found.append(require_whole(folder) if there else 0)
        assert all(require_whole(step_folder(folder, steps)) == steps for steps in kept_steps(folder))
        options = RunOptions(save=folder, resume=folder, steps=9)
        require_save_folder(resolve_resume(options))  # it can be resumed there, or begun again
        assert save(folder, 5, last).steps == require_whole(folder) == 5
        if not dies:
            break
        number += 1
    assert found == sorted(found) and {*found} == {before, before + 1} and number > 10


def test_a_file_that_only_another_machine_sees_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(accepting, "SEEN_S", 0.1)
    missing = WrittenFile("rank-1.safetensors", "0" * 64, 80)
    (tmp_path / NEW_STATES).mkdir()
    with pytest.raises(RunFailed, match="after 3 steps could not be saved: a rank has written this file") as failed:
        accept(tmp_path, OF_RUN, 3, [missing], Retention())
    assert failed.value.where == str(tmp_path / NEW_STATES / "rank-1.safetensors")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / NEW_STATES).write_text("in the way")
    with pytest.raises(RunFailed, match="could not be saved") as failed:
        save(tmp_path, 3)
    assert failed.value.where.startswith(str(tmp_path / NEW_STATES)) and failed.value.exit_code == 5
