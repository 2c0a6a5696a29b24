"""Every bound has a name that says over what it is, and people are told so; and no golden plan beats its own."""

from pathlib import Path

import pytest

from planner import files
from planner.cli.views.plan_tables import proof_line
from planner.plan.plan_file import Outcome, Plan
from planner.report.plan_head import bound_text
from planner.scoring.bounds.step_bounds import BOUNDS, bounds_same_work
from planner.scoring.score import score

GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = sorted(GOLDEN.rglob("plan.yaml"))


def outcome(by: str, status: str, gap: float) -> Outcome:
    return Outcome(status=status, value=1.0 + gap, bound=1.0, gap=gap, bound_by=by, effort="")


@pytest.mark.parametrize("by", BOUNDS)
def test_what_is_proven_of_an_order_is_not_said_of_the_plan(by):
    best, near = (str(proof_line(outcome(by, *each))) for each in (("optimal", 0.0), ("feasible", 0.25)))
    texts = best, near, bound_text(1.0, 1.0, by), bound_text(1.25, 1.0, by)
    assert bounds_same_work(f"area+{by}") == bounds_same_work(by) == BOUNDS[by].same_work  # of several steps
    assert all(("same work" in text) == bounds_same_work(by) for text in texts)
    assert ("proven optimal" in best) == (not bounds_same_work(by))
    assert all(BOUNDS[by].proof in text for text in texts[2:])
    assert BOUNDS[by].proof in bound_text(1.25, 1.0, f"area+{by}")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parent.name)
@pytest.mark.every(7)
def test_no_golden_plan_is_shorter_than_its_bound(path):
    """As the verifier finds it, before what a plan file says is cut off at the value."""
    plan = files.read(path, Plan)
    for number in range(len(plan.steps)):
        scored = score(plan, number)
        assert {*scored.bound.by.split("+")} <= {*BOUNDS}
        assert scored.bound.seconds <= scored.step_seconds * (1 + 1e-9)
