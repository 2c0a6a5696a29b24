"""Lines that several verbs share: a plan's outcome over its steps, sizes of memory, no answer without its reason."""

import io
import re

import pytest
from rich.console import Console

from planner import pipeline
from planner.cli.views.plan_tables import gib_text, outcome_line
from planner.cli.views.why_tables import why_item_lines
from planner.plan.plan_file import Outcome
from planner.units import GIB, MIB
from tests.test_golden import GOLDEN

OUTCOME = Outcome(status="feasible", value=3.0, bound=2.4, gap=0.25, bound_by="coupled", effort="")


def test_several_steps_are_not_called_one():
    assert str(outcome_line(OUTCOME)).startswith("step 3.00 s simulated, at most 25.0 %")
    assert str(outcome_line(OUTCOME, 6)).startswith("6 steps 3.00 s, 500.0 ms each, simulated, at most 25.0 %")


@pytest.mark.parametrize(
    ("held", "text"), [(67.771 * GIB, "67.77 GiB"), (0.11 * GIB, "0.11 GiB"), (20.5 * MIB, "20.5 MiB"), (0, "0.0 MiB")]
)
def test_memory_is_in_gib_and_where_that_is_little_in_mib(held, text):
    assert gib_text(held) == text


def test_every_degree_of_an_item_has_a_step_or_a_reason():
    plan = pipeline.read_plan(GOLDEN / "sequence_groups" / "demo" / "plan.yaml")
    ((items),) = plan.uses.items.values()
    answer = pipeline.why(plan, str(min(items, key=items.get)), 0)
    out = Console(width=200, color_system=None, file=io.StringIO(), highlight=False)
    for each in why_item_lines(answer):
        out.print(each)
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.file.getvalue().splitlines() if line.startswith("⟨")]
    assert len(rows) == len(answer.choices) and all(len(row) >= 7 for row in rows)
    unsolved = [choice for choice in answer.choices if choice.step_seconds is None]
    assert unsolved and sum("not solved" in row or "too long for it" in row for row in rows) == len(unsolved)
