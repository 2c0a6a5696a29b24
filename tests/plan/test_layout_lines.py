"""A layout that a screen prints is what a job's `fix.layouts` takes, and gives the same plan."""

from itertools import starmap
from pathlib import Path

import pytest
import yaml

from planner import files, pipeline
from planner.plan.descriptions import alternative_text, groups_vary, layout_text, module_layout_text
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from tests.static_jobs import small_cluster, static_job
from tests.test_golden import GOLDEN

UNLIKE = (8192, 512, 512, 512, 4096, 1024, 256, 128)
JOBS = {
    "equal sequences": ("llama-3-8b", 8, (4096,) * 16, ""),
    "pipelines": ("llama-3-8b", 8, (4096,) * 16, "pp: 4"),
    "chunks": ("llama-3-8b", 8, (4096,) * 32, "pp: 2, vpp: 2"),
    "rings and heads": ("llama-3-8b", 8, (32768,) * 4, "cp: 4, ulysses: 2"),
    "other lengths": ("llama-3-8b", 8, UNLIKE, ""),
    "fitted layers": ("llama-3-8b", 8, (8192,) * 16, "tp: 2, micro_batch: 2"),
    "experts": ("qwen3-30b-a3b", 16, (4096,) * 32, ""),
    "recomputed parts": ("llama-3-8b", 8, (8192,) * 16, "tp: 2, recompute: [mlp, attention]"),
    "parts of ranges": ("qwen3-30b-a3b", 16, (4096,) * 32, "recompute: {0-3: [moe, norm], 4-7: full}"),
}


def printed(text: str) -> str:
    """What a person copies of a line: the braces, and all in between."""
    return text[text.index("{") : text.rindex("}") + 1]


@pytest.mark.slow
@pytest.mark.parametrize("case", JOBS)
@pytest.mark.every(12)
def test_layouts_that_are_printed_give_the_same_when_they_are_fixed(case, tmp_path):
    model, ranks, sizes, fixed = JOBS[case]
    cluster = small_cluster(tmp_path, "h100-80gb", ranks)
    plan = pipeline.solve(static_job(tmp_path, model, cluster, sizes, fixed, kept="")).plan

    def again(text):
        return pipeline.predict(static_job(tmp_path, model, cluster, sizes, printed(text)[1:-1], kept=""))

    (name,) = plan.layouts
    found = again(module_layout_text(plan, name))
    assert found.plan.layouts == plan.layouts and found.plan.steps == plan.steps and found.plan.groups == plan.groups
    assert found.scores[0].step_seconds == pytest.approx(plan.outcome.value, rel=1e-8)
    assert f", {len(plan.steps[0].micro_batches)} micro-batch" in module_layout_text(plan, name)
    for tried in plan.alternatives:
        if tried.strategy == plan.made.strategy and tried.value is not None:
            seconds = again(alternative_text(tried, plan.made.strategy)).scores[0].step_seconds
            assert seconds == pytest.approx(tried.value, rel=1e-8)


def test_every_field_that_matters_is_there():
    plan = files.read(GOLDEN / "parallel_search/llama-3-8b-h100x64/plan.yaml", Plan)
    (layout,) = plan.layouts.values()
    always = {"tp": 1, "cp": 1, "pp": 1, "dp": 64, "zero": 3, "recompute": "none", "micro_batch": 1, "dtype": "bf16"}
    assert yaml.safe_load(layout_text(layout)) == always
    both = with_fields(layout, cp=4, ulysses=2, vpp=2, pp=2, ep=8, etp=2, recompute={"0-3": "full"}, overlap=("tp",))
    more = {"cp": 4, "ulysses": 2, "pp": 2, "vpp": 2, "ep": 8, "etp": 2, "recompute": {"0-3": "full"}}
    assert yaml.safe_load(layout_text(both)) == {**always, **more, "overlap": ["tp"]}


def test_groups_that_vary_are_not_called_one_layout():
    for path in sorted(Path(GOLDEN).rglob("plan.yaml")):
        plan = files.read(path, Plan)
        for name in plan.layouts:
            text = module_layout_text(plan, name)
            assert groups_vary(plan, name) == ("planner predict PLAN" in text)
        if plan.made.strategy != "by_hand":
            assert any(starmap(groups_vary, ((plan, name) for name in plan.layouts))) == ("groups" in plan.made.decided)
    mixed = files.read(GOLDEN / "by_hand/mixed-groups/plan.yaml", Plan)
    assert module_layout_text(mixed, "llm").startswith("groups of 1, 2 and 4 ranks by micro-batch, not one layout")
