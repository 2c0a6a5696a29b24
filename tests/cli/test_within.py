"""`--within`: a share of the step, as an option and in a job; what none can mean is refused where it stands."""

import pytest

from planner.cli.options import parse_within
from planner.errors import InputError
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import USUAL_WITHIN
from tests.static_jobs import small_cluster, static_job


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0", 0.0), ("0.05", 0.05), ("20 %", 0.2), (None, None)])
def test_a_share_is_a_percentage_or_a_number(text, share):
    assert parse_within(text) == share


@pytest.mark.parametrize("text", ["50%", "0.21", "2", "-1%", "two", "", "nan", "1e-3"])
def test_what_is_no_noise_is_refused_with_what_may_be_said(text):
    with pytest.raises(InputError) as refused:
        parse_within(text)
    assert refused.value.where == "--within" and "20%" in refused.value.fix


def test_an_option_is_before_the_job_and_the_job_before_the_usual(tmp_path):
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 8)
    assert load_job(job, JobOptions()).job.within == USUAL_WITHIN
    with open(job, "a") as file:
        file.write("within: 5%\n")
    assert load_job(job, JobOptions()).job.within == 0.05
    assert load_job(job, JobOptions(within=0.0)).job.within == 0.0


@pytest.mark.parametrize("said", ["50%", "-0.1", "2", "much"])
def test_a_job_of_another_noise_is_refused_where_it_says_so(said, tmp_path):
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 8)
    with open(job, "a") as file:
        file.write(f"within: {said}\n")
    with pytest.raises(InputError, match="within") as refused:
        load_job(job, JobOptions())
    assert str(job) in str(refused.value.where)
