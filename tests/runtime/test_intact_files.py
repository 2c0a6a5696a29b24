"""A byte that is not what was saved is noticed by the rank that reads its file, and every file is read by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.launch.worker import Worker
from planner.models.checkpoints.native import fill_from_full
from planner.models.checkpoints.safetensors_files import write_tensors_streamed
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, SavedStates, checkpoint_index, require_intact
from planner.runtime.run_options import RunOptions
from tests.checkpoint_files import described
from tests.examples import examples
from tests.runtime.training_worlds import spread

PLAN = spread(2, dp=2, zero=1, rows=[[(0, 1)]] * 2)
TENSORS = {"one": torch.arange(40.0), "other": torch.ones(7, 3, dtype=torch.bfloat16), "empty": torch.zeros(0)}
NAMES = ("rank-0.safetensors", "rank-1.safetensors", "rank-2.safetensors")


def rank(number, of=2):
    return Worker(number, of, number, "cpu", 1, lambda kind, value: None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    states = folder / "states-a"
    states.mkdir()
    digests = {name: write_tensors_streamed(states / name, described(TENSORS), TENSORS.values()) for name in NAMES}
    files.write(folder / INDEX_FILE, checkpoint_index(PLAN, RunOptions(steps=9), SavedStates(3, "states-a", digests)))
    return folder


def test_what_was_saved_is_accepted(checkpoint):
    for number in range(2):
        require_intact(rank(number), checkpoint)
    require_intact(rank(0), None)


@examples(50)
@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.integers(1, 255), st.integers(1, 4))
def test_one_other_byte_is_noticed_by_one_rank(checkpoint, name, place, by, ranks):
    file = checkpoint / "states-a" / name
    before = file.read_bytes()
    place %= len(before)
    file.write_bytes(before[:place] + bytes([before[place] ^ by]) + before[place + 1 :])
    try:
        refused = [number for number in range(ranks) if is_refused(rank(number, ranks), checkpoint, file)]
    finally:
        file.write_bytes(before)
    assert len(refused) == 1


def is_refused(worker, folder, file):
    try:
        require_intact(worker, folder)
    except InputError as error:
        assert (error.where, "damaged" in error.message, "sha256sum" in error.fix) == (str(file), True, True)
        return True
    return False


def test_a_file_that_is_gone_is_named(checkpoint):
    file = checkpoint / "states-a" / NAMES[0]
    moved = file.rename(file.with_suffix(".gone"))
    try:
        with pytest.raises(InputError, match="cannot read the file"):
            require_intact(rank(0, 1), checkpoint)
    finally:
        moved.rename(file)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value):
    values = torch.ones(4, 4)
    values[2, 1] = value
    with pytest.raises(InputError, match="`up` has numbers that are not finite"):
        fill_from_full({"up": torch.zeros(4, 4, dtype=torch.bfloat16)}, {}, lambda name: values, tmp_path)
