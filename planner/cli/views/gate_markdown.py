"""The gate's answer as Markdown, for a comment in a review: the verdict, every case, and of those that changed what was
found, why, and both plans drawn.
"""

from collections.abc import Iterator, Sequence

from planner import pipeline
from planner.check import CheckedCase, all_findings, label, to_markdown
from planner.cli import render
from planner.cli.views.plan_picture import draw_plan
from planner.plan.plan_file import Plan

DRAWN = 5  # cases: a comment holds no more


def gate_markdown(cases: Sequence[CheckedCase]) -> str:
    """All findings as one table; then cases whose plan is another, drawn."""
    changed = [case for case in cases if case.stored and case.today and case.stored != case.today]
    drawn = [case for case in changed if label(case.findings) not in ("illegal", "equal", "stale")]
    return "\n".join([to_markdown(all_findings([*cases])), *(section(case) for case in drawn[:DRAWN])])


def section(case: CheckedCase) -> str:
    """A case whose plan is another: why its step takes another time, and both plans."""
    assert case.stored and case.today, "only cases with both plans are drawn"
    reasons = [f"- {each}" for each in pipeline.because(case.stored, case.today)]
    title = f"### {case.name or case.today.name}: {label(case.findings)}"
    drawings = [*drawing("the stored plan", case.stored), *drawing("the plan of today", case.today)]
    return "\n".join([title, "", *reasons, "", *drawings])


def drawing(what: str, plan: Plan) -> Iterator[str]:
    """A plan as it is shown in a terminal, folded up."""
    picture = render.plain_text(draw_plan(plan, pipeline.simulate(plan), render.PLAIN_CANVAS))
    yield from (f"<details><summary>{what}</summary>", "", "```text", picture.rstrip(), "```", "", "</details>", "")
