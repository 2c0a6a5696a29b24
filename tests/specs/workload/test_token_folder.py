"""A job's lengths from a folder of tokens are those of a file with the same lengths."""

import numpy as np
import pytest

from planner.errors import InputError
from planner.online.batch_stream import BLOCK_BATCHES, BatchStream
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.length_sources import LengthsFile, TokensFolder, Workload
from planner.specs.workload.samples import read_batches
from tests.online.small_jobs import FILE, write_job

LENGTHS = [10, 129, 2000, 128, 1, 1000, 1001]


def folder_of(path, lengths):
    path.mkdir(exist_ok=True)
    np.save(path / "offsets.npy", np.cumsum([3, *lengths], dtype="int64"))  # a folder may begin anywhere
    return path


def workload(lengths, rows=3):
    return Workload(lengths=lengths, batch_rows=rows, max_tokens=1000, round_to=128)


def test_batches_are_those_of_a_file_with_the_same_lengths(tmp_path):
    folder_of(tmp_path / "data", LENGTHS)
    (tmp_path / "lengths.txt").write_text("\n".join(map(str, LENGTHS)))
    ours, theirs = (workload(lengths) for lengths in (TokensFolder(path="data"), LengthsFile(path="lengths.txt")))
    for count, first in ((2, 0), (1, 4)):
        assert read_batches(ours, count, first, 0, tmp_path) == read_batches(theirs, count, first, 0, tmp_path)
    with pytest.raises(InputError, match="end at sample 9, the data has 7"):
        read_batches(ours, 3, 0, 0, tmp_path)


@pytest.mark.parametrize("offsets", [[0, 5, 5, 9], [0, 5, 4, 9]])
def test_offsets_that_do_not_rise(tmp_path, offsets):
    np.save(tmp_path / "offsets.npy", np.array(offsets, dtype="int64"))
    with pytest.raises(InputError, match="sample 1 is from token 5") as refused:
        read_batches(workload(TokensFolder(path=".")), 1, 0, 0, tmp_path)
    assert refused.value.where == str(tmp_path / "offsets.npy") and refused.value.fix
    assert read_batches(workload(TokensFolder(path="."), rows=1), 1, 0, 0, tmp_path)[0].items == {0: 128}


def test_a_folder_in_place_of_a_job_s_lengths(tmp_path):
    """`--lengths DIR`, and what a plan notes of it: the file of offsets, which names the folder again."""
    job = str(write_job(tmp_path, lengths=FILE, rows=3))
    folder = folder_of(tmp_path / "data", LENGTHS)
    inputs = load_job(job, JobOptions(lengths=str(folder)))
    assert inputs.batches[0].dropped == (2,) and [*inputs.batches[0].items] == [0, 1]
    assert inputs.sources["lengths"] == folder / "offsets.npy"
    assert load_job(job, JobOptions(lengths=str(folder / "offsets.npy"))).batches == inputs.batches


def test_batches_stream_from_it(tmp_path):
    lengths = [20 + 37 * row % 400 for row in range(3 * BLOCK_BATCHES + 5)]
    folder_of(tmp_path / "data", lengths)
    job = str(write_job(tmp_path, lengths="{from: tokens, path: data}", rows=2))
    inputs = load_job(job, JobOptions(batches=BLOCK_BATCHES + 3, first_row=1))
    stream = BatchStream(load_job(job, JobOptions(first_row=1)))
    assert tuple(stream[number] for number in range(BLOCK_BATCHES + 3)) == inputs.batches
    assert stream[2] == inputs.batches[2] and len(stream.lengths.known) <= 2 * BLOCK_BATCHES
    assert stream.total == (3 * BLOCK_BATCHES + 4) // 2 and stream[stream.total] == stream[0]
