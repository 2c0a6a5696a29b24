"""Stages are a partition of the layers in order: each other list of ranges is refused, and counts say their ranges."""

from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.files import parse
from planner.specs.base import Layers
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import Job
from planner.specs.parallelism import broken_partition
from tests.static_jobs import small_cluster, static_job

STAGES = st.lists(
    st.sets(st.integers(0, 9), min_size=1, max_size=5).map(lambda each: Layers(sorted(each))), min_size=1, max_size=5
)


@given(STAGES, st.integers(1, 9))
def test_only_a_partition_in_order_is_none(stages, layers):
    """The definition, beside the law: put together, the stages are the layers."""
    assert (broken_partition(stages, layers) is None) == (sum(stages, ()) == tuple(range(layers)))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_counts_are_refused_with_the_stages_that_they_mean(counts):
    meant = [Layers(range(*each)) for each in pairwise(accumulate(counts, initial=0))]
    given_counts = [Layers((count,)) for count in counts]
    if broken := broken_partition(given_counts, sum(counts)):
        _, _, text = broken[1].partition("stages: ")
        assert [Layers.from_file(each) for each in text.strip("[]").split(", ")] == meant
        assert broken_partition(meant, sum(counts)) is None


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("[8, 24]", "single layers 8, 24"),
        ("[0-15, 16-30]", "layer 31 in no stage"),
        ("[0-15, 15-31]", "layer 15 is in 2 stages"),
        ("[0-15, 16-32]", "layer 32 of the stages does not exist, there are 32"),
        ("[16-31, 0-15]", "do not rise"),
    ],
)
@pytest.mark.parametrize("at", ["fixed", "kept"])
def test_jobs_are_refused_where_they_say_it(stages, message, at, tmp_path):
    said = {"fixed": "pp: 2, tp: 4", "kept": "zero: 1", at: f"pp: 2, tp: 4, stages: {stages}"}
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 8, **said)
    parse(Path(job).read_text(), Job, "job")  # it is the module that says how many layers there are
    with pytest.raises(InputError, match=message) as refused:
        load_job(job, JobOptions())
    assert "stages" in refused.value.where
