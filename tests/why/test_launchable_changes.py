"""Changes of a plan are judged by the software that it carries, without the folder of software files."""

import pytest

from planner import pipeline
from planner.specs.base import with_fields
from planner.specs.framework.software import Framework
from planner.specs.named_files import read_software
from tests.static_jobs import for_software, small_cluster, static_job


def solved(folder, software):
    cluster = small_cluster(folder, "h100-80gb", 8)
    job = static_job(folder, "llama-3-8b", cluster, (4096,) * 16, kept="")
    return pipeline.solve(for_software(job, software)).plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return solved(tmp_path_factory.mktemp("torchtitan"), "torchtitan")


def test_a_plan_carries_the_knobs_of_its_software(plan):
    assert plan.uses.software == read_software("torchtitan")[0].framework
    assert plan.uses.software.knobs.kv_heads == "sharded"


@pytest.mark.parametrize(
    ("change", "rule", "fix"),
    [
        ("zero=1 tp=1 cp=1 pp=1", "ZeRO stage", "zero: 0 or 2 or 3"),
        ("cp=4 ulysses=4", "context parallelism", "cp: 1"),
        ("schedule=zb_h1", "schedule", "schedule: 1f1b or gpipe or interleaved"),
    ],
)
@pytest.mark.every(3)
def test_a_value_that_cannot_be_launched_names_the_rule(plan, change, rule, fix):
    answer = pipeline.why_not(plan, tuple(change.split()))
    assert answer.after is None and answer.infeasible is not None
    assert answer.infeasible.message.startswith("torchtitan cannot launch this layout")
    assert answer.infeasible.message.endswith(f"(rule: {rule})")
    assert answer.infeasible.where == "software" and answer.infeasible.fix == fix


@pytest.mark.slow
def test_what_is_found_instead_can_be_launched(plan):
    """Fixing tp leaves the others to the search, which keeps to the rules; without any there is a better answer."""
    change = ("pp=2", "micro_batch=8")  # one micro-batch a replica and two stages: 1F1B of torchtitan needs two
    asked = pipeline.why_not(plan, change)
    free = with_fields(plan, uses=with_fields(plan.uses, software=Framework()))
    unbound = pipeline.why_not(free, change)
    assert unbound.after is not None
    assert asked.after is None or unbound.after.value <= asked.after.value
