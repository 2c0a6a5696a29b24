"""The workloads of MegaScale-Omni's evaluation: jobs that can be read, and figures over mixes."""

import pytest

from benchmarks.omni import JOB, MIXES, WORKLOADS, spread
from planner.solve_job import read_job
from planner.specs.inputs import JobOptions


@pytest.mark.parametrize("name", WORKLOADS)
def test_mixes_have_more_and_more_images(tmp_path, name):
    given = WORKLOADS[name]
    said = JOB.format(model=name, median=given.longest // 4, images=given.longest // 2048, **given._asdict())
    (tmp_path / "job.yaml").write_text(said)
    images = []
    for mix in MIXES:
        inputs = read_job(str(tmp_path / "job.yaml"), JobOptions(mix=mix))
        assert len(inputs.batches[0].items) + len(inputs.batches[0].dropped) == given.batch
        assert max(inputs.batches[0].items.values()) <= given.longest
        images.append(len(inputs.batches[0].streams["vision"]))
    assert 0 < images[0] < images[1] < images[2]


def test_spread_is_most_over_least():
    assert spread([2.0, 3.0, 2.5]) == 1.5
    assert spread([]) is None
