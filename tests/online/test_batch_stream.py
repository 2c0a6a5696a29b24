"""Batches that stream are those that are read at once, over and over; what is sampled is not kept."""

import pytest

from planner.online.batch_stream import BLOCK_BATCHES, BatchStream
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.samples import MAX_SAMPLES
from tests.online.several_jobs import DRAWN_STREAMS, FOLDER, MIXED, SAMPLES_FILE, STREAM_FILES, write_several_job
from tests.online.small_jobs import FILE, MIX, write_job

WIKIPEDIA = "{from: distribution, name: wikipedia}"


@pytest.mark.parametrize(
    ("lengths", "count"), [(FILE, 4), (MIX, 2 * BLOCK_BATCHES + 3), (WIKIPEDIA, BLOCK_BATCHES + 1)]
)
@pytest.mark.parametrize("first_row", [0, 3])
def test_batches_are_those_read_at_once(tmp_path, lengths, count, first_row):
    job = str(write_job(tmp_path, lengths=lengths, rows=8))
    inputs = load_job(job, JobOptions(batches=count, first_row=first_row, seed=5))
    stream = BatchStream(load_job(job, JobOptions(first_row=first_row, seed=5)))
    assert tuple(stream[number] for number in range(count)) == inputs.batches
    assert stream[1] == inputs.batches[1]  # backwards too


def test_after_the_last_batch_comes_the_first(tmp_path):
    stream = BatchStream(load_job(str(write_job(tmp_path, lengths=FILE, rows=8)), JobOptions(first_row=8)))
    assert stream.total == 3  # of 37 rows, 8 at a time, from row 8
    assert [stream.first_sample(number) for number in range(7)] == [8, 16, 24, 8, 16, 24, 8]
    assert stream[3] == stream[0] and stream[5] == stream[2]


def test_sampled_data_keeps_one_block(tmp_path):
    stream = BatchStream(load_job(str(write_job(tmp_path, rows=8)), JobOptions()))
    assert stream.total is None
    for number in (0, 5 * BLOCK_BATCHES, BLOCK_BATCHES + 1):
        assert stream[number]
        assert len(stream.lengths.known) == 8 * BLOCK_BATCHES
    assert stream.first_sample(MAX_SAMPLES // 8) == 0


@pytest.mark.parametrize("first_row", [0, 6])
@pytest.mark.parametrize(
    ("data", "count"), [(STREAM_FILES, 4), (DRAWN_STREAMS, 30), (SAMPLES_FILE, 4), (FOLDER, 2), (MIXED, 70)]
)
def test_batches_of_several_modules_are_those_read_at_once(tmp_path, data, count, first_row):
    """With the numbers of items, who reads them, and what was dropped or left out; in any order, and again."""
    job = write_several_job(tmp_path, data)
    asked = JobOptions(batches=count, first_row=first_row, seed=5)
    inputs = load_job(job, asked)
    stream = BatchStream(load_job(job, JobOptions(first_row=asked.first_row, seed=5)))
    assert [stream[number] for number in range(count)] == [*inputs.batches]
    assert stream[1] == inputs.batches[1]
    assert stream.total is None or stream[stream.total] == inputs.batches[0]
    assert (stream.total is None) == (data in (DRAWN_STREAMS, MIXED))
    every = [batch for batch in inputs.batches if any(batch.streams.values())]
    assert every and (len(every) < count or data not in (STREAM_FILES, SAMPLES_FILE))
    if data in (DRAWN_STREAMS, SAMPLES_FILE, MIXED):
        assert any(batch.dropped for batch in inputs.batches) and any(batch.left_out for batch in inputs.batches)
