"""A packing as a plan, and what its step is made of: what packing counts, and what only the clock does."""

from dataclasses import fields

import pytest

from planner.costs import step_prices
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import Packing, packing_seconds
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.strategies.plan_drafts import plan_micro_batch


class Waiting(PackingProblem):
    """The problem whose groups also wait for the host, which launches passes no sooner however little is in them."""

    def seconds(self, shape: int, items: tuple[int, ...]) -> float:
        return self.shapes[shape].line.seconds([self.sizes[item] for item in items])


def plan_of_packed(plan: Plan, problem: PackingProblem, packed: Packing) -> Plan:
    """The plan with another packing."""
    groups: dict = {}
    rows = tuple(plan_micro_batch(row, problem, plan.uses.models["llm"], groups) for row in packed)
    made = with_fields(plan, groups=groups, steps=(with_fields(plan.steps[0], micro_batches=rows),))
    assert violations(made) == []
    return made


def require_taken(plan: Plan, problem: PackingProblem, packed: Packing) -> None:
    """A step takes its groups' lines, the update, and of each exchange what its own micro-batches do not hide. Packing
    counts of these what nothing hides, and no wait for the host.
    """
    found = score(plan)
    price, tasks = step_prices(found.plan_memory.pricing, found.tasks), found.tasks
    exposed = sum(price(task).value for task in tasks if task.phase in ("gather", "sync"))
    update = max(price(task).value for task in tasks if task.phase == "update")
    parts = {field.name: getattr(problem, field.name) for field in fields(PackingProblem)}
    waiting = Waiting(**{**parts, "micro_batch_seconds": 0.0, "step_seconds": update})
    assert found.step_seconds == pytest.approx(packing_seconds(waiting, packed) + exposed, rel=1e-9)
    assert packing_seconds(problem, packed) <= found.step_seconds * (1 + 1e-9)
