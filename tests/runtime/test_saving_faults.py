"""A rank that cannot write its file ends the run behind a step, named with its file; the checkpoint before stays."""

import resource
from dataclasses import replace

import pytest

from planner.errors import RunFailed
from planner.launch.processes import launch
from planner.runtime import RunOptions
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, NEW_STATES, file_digest, read_index
from planner.runtime.checkpoint.saving import SAVE_LOCK
from planner.runtime.execute.training_loop import run_on_rank
from planner.specs.base import with_fields
from tests.runtime.training_worlds import DECODER, spread

pytestmark = pytest.mark.slow

PLAN = spread(2, with_fields(DECODER, layers=2), dp=2, zero=3, rows=[[(0, 1)]] * 2)


def limited_later(worker, plan, options, size):
    """A run whose second rank finds its disk full."""
    if worker.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return run_on_rank(worker, plan, options)


@pytest.mark.parametrize("save_every", [1, None])
def test_a_full_disk_of_one_rank_is_named_and_leaves_the_checkpoint_before(tmp_path, save_every):
    options = RunOptions(steps=2, save=tmp_path / "run")
    launch(run_on_rank, 2, PLAN, options)
    more = replace(options, steps=6, resume=options.save, save_every=save_every)
    with pytest.raises(RunFailed) as failed:
        launch(limited_later, 2, PLAN, more, 10_000)
    assert "could not be saved: cannot write: File too large" in failed.value.message
    assert failed.value.where == f"rank 1, task saving, {options.save / NEW_STATES / 'rank-1.safetensors'}"
    assert failed.value.exit_code == 5
    index = read_index(options.save)
    assert index.steps == 2
    assert all(file_digest(options.save / index.states / name) == digest for name, digest in index.digests.items())
    assert {path.name for path in options.save.iterdir()} - {NEW_STATES} == {
        INDEX_FILE, index.states, SAVE_LOCK, "config.json", "model.safetensors",
    }  # fmt: skip
    last = launch(run_on_rank, 2, PLAN, more)[0]
    assert (last.steps_before, read_index(options.save).steps) == (2, 6)
    assert not (options.save / NEW_STATES).exists()
