"""The example of docs/concepts.md that a reader works by hand: its sums are right, and planner finds the same."""

import re

import pytest

from planner import pipeline
from planner.costs import packing_problem, pricing_of
from planner.scoring.bounds.step_bounds import area_seconds
from planner.specs.inputs import JobOptions
from tests.documents import DOCS

JOB = DOCS / "examples" / "by-hand" / "job.yaml"
PAGE = (DOCS / "concepts.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## A plan and its bound, by hand\n")[2].partition("\n## ")[0]
SUMS = re.findall(r"((?:[\d.]+|\([\d.+ ]+\))(?: ?[·/+] ?(?:[\d.]+|\([\d.+ ]+\)))+) = ([\d.]+)(?!\d)", SECTION)
MS = 1e3


@pytest.fixture(scope="module")
def plan():
    return pipeline.solve(str(JOB)).plan


@pytest.fixture
def problem(plan):
    return packing_problem(pricing_of(plan), "llm", plan.uses, dict(plan.uses.items["llm"]))


def cells(document: str) -> list[float | None]:
    """Milliseconds on 1, 2 and 4 ranks, as the page's table of costs has them; None: it does not fit."""
    row = re.search(rf"^\| {document} tokens \| (.*?) \| (.*?) \| (.*?) \|$", SECTION, re.MULTILINE)
    assert row
    found = (re.search(r"= ([\d.]+) ms$", cell) for cell in row.groups())
    return [float(each[1]) if each else None for each in found]


def test_there_are_sums_and_they_are_right():
    assert len(SUMS) >= 14
    for left, right in SUMS:
        assert eval(left.replace("·", "*")) == pytest.approx(float(right)), left


@pytest.mark.parametrize("document", [3000, 2000])
def test_costs_are_those_that_planner_uses(problem, document):
    item = next(item for item, size in problem.sizes.items() if size == document)
    allowed = problem.choices(item)
    for number, (shape, shown) in enumerate(zip(problem.shapes, cells(str(document)), strict=True)):
        assert (number in allowed) == (shown is not None)
        if shown is not None:
            assert (problem.seconds(number, (item,)) - shape.line.const) * MS == pytest.approx(shown)
    assert problem.least_micro_batch_seconds * MS == pytest.approx(1)
    assert problem.fewest_micro_batches == 1


def test_the_plan_of_the_page_is_what_planner_proves_optimal(plan, problem):
    assert plan.outcome.value * MS == pytest.approx(13)
    assert (plan.outcome.bound_by, plan.outcome.status) == ("area", "optimal")
    assert area_seconds(problem) * MS == pytest.approx(13)
    (micro_batch,) = plan.steps[0].micro_batches
    assert sorted(len(plan.groups[name].ranks) for name in micro_batch) == [1, 1, 2]
    assert "max(12, 12, 12) = 12 ms | **13 ms**" in SECTION


@pytest.mark.parametrize(("degree", "step"), [(4, 15.75), (2, 15.0)])
def test_other_plans_take_what_the_page_says(plan, degree, step):
    answer = pipeline.why_not(plan, (f"degrees={degree}",))
    assert answer.after is not None
    assert answer.after.value * MS == pytest.approx(step)
    assert f"| {step:g} ms |" in SECTION


def test_a_shorter_document_leaves_the_gap_of_the_page(tmp_path):
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("3000\n2000\n1500\n")
    shorter = pipeline.solve(str(JOB), JobOptions(lengths=str(lengths))).plan
    problem = packing_problem(pricing_of(shorter), "llm", shorter.uses, dict(shorter.uses.items["llm"]))
    area = area_seconds(problem) * MS
    assert f"= {area:.4f} ms" in SECTION and shorter.outcome.value * MS == pytest.approx(13)
    assert f"{13 / area - 1:.1%}".replace("%", " %") in SECTION.replace("\n", " ")
    assert (shorter.outcome.bound_by, shorter.outcome.status) == ("coupled", "optimal")
