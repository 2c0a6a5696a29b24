"""A packing as a plan, and what its step is made of: what packing counts, and what only the clock does."""

from dataclasses import fields

import pytest

from planner.costs.step.sequences import Sequences
from planner.packing.packed import Packed, worth
from planner.plan.legal import violations
from planner.plan.model import Plan
from planner.specs.base import changed
from planner.strategies.base import row_of
from planner.verify.score import score


class Waiting(Sequences):
    """The problem whose groups also wait for the host, which launches passes no sooner however little is in them."""

    def seconds(self, shape: int, items: tuple[int, ...]) -> float:
        return self.shapes[shape].line.seconds([self.sizes[item] for item in items])


def plan_of_packed(plan: Plan, problem: Sequences, packed: Packed) -> Plan:
    """The plan with another packing."""
    groups: dict = {}
    rows = tuple(row_of(row, problem, plan.uses.models["llm"], groups) for row in packed)
    made = changed(plan, groups=groups, steps=(changed(plan.steps[0], micro_batches=rows),))
    assert violations(made) == []
    return made


def require_taken(plan: Plan, problem: Sequences, packed: Packed) -> None:
    """A step takes its groups' lines, the update, and of each exchange what its own micro-batches do not hide. Packing
    counts of these what nothing hides, and no wait for the host.
    """
    found = score(plan)
    price, tasks = found.holding.pricing.among(found.tasks), found.tasks
    exposed = sum(price(task).value for task in tasks if task.phase in ("gather", "sync"))
    update = max(price(task).value for task in tasks if task.phase == "update")
    parts = {field.name: getattr(problem, field.name) for field in fields(Sequences)}
    waiting = Waiting(**{**parts, "row_seconds": 0.0, "step_seconds": update})
    assert found.value == pytest.approx(worth(waiting, packed) + exposed, rel=1e-9)
    assert worth(problem, packed) <= found.value * (1 + 1e-9)
