"""What changes numerics is told as an alternative of a static layout, at its own price, and never chosen."""

from dataclasses import replace

import pytest

from planner import pipeline
from planner.plan.descriptions import flow_text
from planner.specs.base import with_fields
from planner.specs.framework.software import ANY
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import decided_fields
from planner.strategies import parallel_search
from tests.static_jobs import for_software, small_cluster, static_job

LENGTHS = [8192, 512, 3000, 700, 700, 256, 6000, 4096, 1024, 90, 128, 2048]
FIELDS = {"dtype": "fp8", "gradients": "bf16"}


@pytest.fixture
def job(tmp_path):
    """The path of a job of eight ranks, for software that has fp8 and sends gradients in bf16."""

    def write(sizes=(4096,) * 16, kept="", fixed="cp: 1, pp: 1", software="megatron", kind="h100-80gb"):
        cluster = small_cluster(tmp_path, kind, 8, per_node=4)
        return for_software(static_job(tmp_path, "llama-3-8b", cluster, sizes, fixed, kept), software)

    return write


def solved(path):
    return parallel_search.plan(load_job(path, JobOptions()), None)


def changes(plan):
    """Of each alternative that changes numerics, the field that it changes, and the alternative."""
    told = {name: f"say layout.{name} {value}" for name, value in FIELDS.items()}
    return {name: each for each in plan.alternatives for name, what in told.items() if each.because.endswith(what)}


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize("sizes", [(4096,) * 16, LENGTHS], ids=["equal", "unequal"])
def test_each_is_predicted_as_it_is_told(job, sizes):
    plan = solved(job(sizes, software=ANY))
    told = changes(plan)
    assert "dtype" in told
    for field, each in told.items():
        fixed = ", ".join(f"{name}: {flow_text(value)}" for name, value in decided_fields(each.layouts["llm"]).items())
        found = pipeline.predict(job(sizes, fixed=fixed, software=ANY)).plan
        assert found.outcome.value == pytest.approx(each.value, rel=1e-8)
        assert found.prediction.oom_chance <= plan.uses.limits.oom_chance
        assert each.value < plan.outcome.value
        assert decided_fields(each.layouts["llm"])[field] == FIELDS[field] and "changes numerics" in each.because


@pytest.mark.slow
def test_what_a_job_says_is_what_was_told(job):
    """The search of a job that says the change is given as much as the alternative, and tells no such one."""
    told = changes(solved(job()))["dtype"]
    plan = solved(job(kept="dtype: fp8"))
    assert plan.outcome.value <= told.value * (1 + 1e-8)
    assert plan.layouts["llm"].dtype == "fp8" and "dtype" not in changes(plan)


@pytest.mark.parametrize("kept", ["dtype: bf16", "dtype: float32", "dtype: fp8"])
@pytest.mark.every(3)
def test_none_is_told_of_what_a_job_fixes(job, kept):
    assert "dtype" not in changes(solved(job(kept=kept)))


@pytest.mark.slow
def test_none_is_told_that_the_framework_lacks(job):
    """torchtitan sends no gradients in bf16, and this planner's own runtime has no products in fp8."""
    assert set(changes(solved(job(software="torchtitan")))) == {"dtype"}
    assert "dtype" not in changes(solved(job(software="planner")))


@pytest.mark.slow
def test_none_is_told_without_a_price(job):
    """An A100 has no fp8; and where products were timed in bf16 alone, none in fp8 are compared with them."""
    assert "dtype" not in changes(solved(job(kind="a100-80gb")))
    inputs = load_job(job(), JobOptions())
    (kind,) = inputs.rates
    timed = with_fields(inputs.rates[kind], gemm={"bf16": inputs.rates[kind].gemm["bf16"]})
    assert "dtype" not in changes(parallel_search.plan(replace(inputs, rates={kind: timed}), None))


@pytest.mark.slow
def test_none_is_chosen(job):
    told = job(software=ANY)
    without = with_fields(load_job(told, JobOptions()).software.knobs, dtypes=("bf16",), gradients=("float32",))
    inputs = load_job(told, JobOptions())
    plain = replace(inputs, software=with_fields(inputs.software, knobs=without))
    plan, alone = parallel_search.plan(inputs, None), parallel_search.plan(plain, None)
    assert changes(plan) and not changes(alone)
    assert (plan.layouts, plan.outcome) == (alone.layouts, alone.outcome)
    assert alone.alternatives == plan.alternatives[: len(alone.alternatives)]


def test_none_is_told_whose_offload_would_not_hide(job):
    """Activations that bf16 hides on their way to the host, and fp8 does not, are no reason to give no plan."""
    fixed = "recompute: none, tp: 1, cp: 1, pp: 1, zero: 3, micro_batch: 1, offload: 0.27"
    plan = solved(job((6144,) * 8, fixed=fixed, software=ANY))
    assert plan.layouts["llm"].offload == 0.27 and "dtype" not in changes(plan)
