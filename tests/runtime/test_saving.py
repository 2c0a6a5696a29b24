"""What was trained is a checkpoint: a run that starts from it continues where the first one ended."""

import json
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from planner.errors import InputError
from planner.files import write
from planner.files.file_lock import hold_lock
from planner.launch.processes import launch
from planner.launch.worker import joined_world, worker_from_environment
from planner.models.checkpoints.safetensors_files import SafetensorsCheckpoint
from planner.runtime import RunOptions
from planner.runtime.checkpoint import accepting
from planner.runtime.checkpoint.checkpoint_index import (
    INDEX_FILE,
    SavedStates,
    checkpoint_index,
    read_index,
)
from planner.runtime.checkpoint.kept_checkpoints import kept_steps
from planner.runtime.checkpoint.saving import SAVE_LOCK, save_lock
from planner.runtime.checkpoint.stored_states import saveable_decoder
from planner.runtime.execute.training_loop import train
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.runtime.run_options import TrainingOptions
from planner.specs.base import with_fields
from tests.plans import encoder_plan
from tests.runtime.training_worlds import DECODER, choose_warm_up, spread

LLAMA = with_fields(DECODER, layers=2)
PLANS = {
    "stages": spread(2, LLAMA, pp=2, zero=1, rows=[[(0, 1)]] * 2),
    "matrices": spread(2, LLAMA, tp=2, zero=1, rows=[[(0, 1)]] * 2),
    "shards": spread(2, LLAMA, dp=2, zero=3, rows=[[(0, 1)]] * 2),
}
PLAIN = TrainingOptions(learning_rate=3e-3)
PATIENCE_S = 4.0  # more than a rank is late for having no processor


@contextmanager
def slow_disk(rank):
    """One that takes longer for the second rank's first file than ranks wait for each other otherwise."""
    write, sleeps = accepting.write_shards, [1.1 * PATIENCE_S] * rank

    def waiting(path, shards, values):
        if sleeps:
            time.sleep(sleeps.pop())
        return write(path, shards, values)

    accepting.write_shards = waiting
    _set_pg_timeout(timedelta(seconds=PATIENCE_S), dist.group.WORLD)
    yield
    accepting.write_shards = write
    _set_pg_timeout(timedelta(seconds=60), dist.group.WORLD)


def saved_and_taken_up(worker, plans, folder):
    """Losses of three steps in a row; of the first two, saved; of the next one on each of the plans."""
    choose_warm_up(False)
    with joined_world(worker, timeout_s=60):
        first = train(worker, plans["stages"], RunOptions(steps=3, training=PLAIN))
        slow = RunOptions(steps=3, training=PLAIN, save=folder / "slow", save_every=1, keep=3)
        with slow_disk(worker.rank):
            train(worker, plans["stages"], slow)
        for name, plan in plans.items():
            train(worker, plan, RunOptions(steps=2, training=PLAIN, save=folder / name))
        then = {
            (saved, name): train(worker, plan, RunOptions(steps=1, weights=folder / saved))
            for saved in plans
            for name, plan in plans.items()
        }
    return first, then


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return launch(saved_and_taken_up, 2, PLANS, folder)[0], folder


@pytest.mark.slow
def test_another_run_goes_on_from_it_however_it_is_spread(runs):
    (first, then), _ = runs
    assert abs(first.steps[2].loss / first.steps[0].loss - 1) > 1e-3
    for result in then.values():
        assert result.steps[0].loss == pytest.approx(first.steps[2].loss, rel=1e-11)


@pytest.mark.slow
def test_a_disk_may_be_slower_than_ranks_are_patient(runs):
    """And than steps are: each checkpoint waits for the one before it."""
    assert read_index(runs[1] / "slow").steps == 3
    assert sorted(kept_steps(runs[1] / "slow")) == [1, 2]


@pytest.mark.slow
def test_the_folder_holds_the_model_and_the_checkpoint(runs):
    _, folder = runs
    for name in PLANS:
        found = {path.name for path in (folder / name).iterdir()}
        assert found == {"config.json", "model.safetensors", "checkpoint.yaml", "saving.lock", "states-a"}
        assert {path.name for path in (folder / name / "states-a").iterdir()} == {
            "rank-0.safetensors",
            "rank-1.safetensors",
        }
        config = json.loads((folder / name / "config.json").read_text())
        assert (config["num_hidden_layers"], config["hidden_size"]) == (LLAMA.layers, LLAMA.hidden)
        assert "model.layers.1.self_attn.q_proj.weight" in SafetensorsCheckpoint(folder / name).entries


def test_what_cannot_be_a_folder_is_refused_before_training(tmp_path):
    require_runnable(PLANS["stages"], RunOptions(save=tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no folder"):
        require_runnable(PLANS["stages"], RunOptions(save=tmp_path / "file"))


def test_of_one_decoder_alone_there_is_a_form_that_others_read():
    assert saveable_decoder(PLANS["stages"]) == saveable_decoder(encoder_plan()) == "llm"
    assert saveable_decoder(spread(1, with_fields(LLAMA, sinks=True), dp=1, rows=[[(0,)]])) is None


@pytest.mark.slow
def test_two_runs_do_not_save_into_one_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    says = "another run saves in this folder already"
    with (
        hold_lock(tmp_path / SAVE_LOCK, "a test"),
        pytest.raises(InputError, match=says),
        save_lock(worker_from_environment("cpu", 1), PLANS["stages"], RunOptions(save=tmp_path)),
    ):
        raise AssertionError("it must not begin")


def test_a_run_does_not_replace_what_another_saved_since_it_was_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    options = RunOptions(save=tmp_path, steps=9)
    require_runnable(PLANS["stages"], options)
    write(tmp_path / INDEX_FILE, checkpoint_index(PLANS["stages"], options, SavedStates(3, "states-a", {})))
    with (
        pytest.raises(InputError, match="there is a checkpoint here"),
        save_lock(worker_from_environment("cpu", 1), PLANS["stages"], options),
    ):
        raise AssertionError("it must not begin")
