"""Plans and pages for tests."""

from functools import cache
from pathlib import Path

from planner import pipeline
from planner.plan.plan_file import Plan
from planner.report import plan_page
from planner.report.page import Page
from planner.scoring.score import Score
from planner.specs.inputs import JobOptions

GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = {
    "demo": GOLDEN / "sequence_groups" / "demo" / "plan.yaml",
    "kinds": GOLDEN / "sequence_groups" / "two-kinds" / "plan.yaml",
    "encoder": GOLDEN / "by_hand" / "encoder-in-bubbles" / "plan.yaml",
    "offload": GOLDEN / "data_ranks" / "offload-h200x8" / "plan.yaml",
    "static": GOLDEN / "parallel_search" / "llama-3-8b-h100x64" / "plan.yaml",
}
EVIL = "</script><img src=x onerror=alert(1)>\u2028&\u2029'\""


@cache
def scored(name: str) -> tuple[Plan, tuple[Score, ...]]:
    plan = pipeline.read_plan(PLANS[name])
    return plan, tuple(pipeline.simulate(plan))


@cache
def page(name: str) -> Page:
    return plan_page(*scored(name))


@cache
def ten_steps() -> tuple[Plan, tuple[Score, ...]]:
    """64 ranks, ten batches."""
    plan = pipeline.solve("flexsp-gpt-7b-a100x64", JobOptions(batches=10, effort=1)).plan
    return plan, tuple(pipeline.simulate(plan))
