"""A digest of a bound over the space of layouts, so that whoever reads a plan sees at once that it was edited.

Such a bound takes seconds to find, so screens do not find it again; `planner check` does, whatever the digest says.
"""

import hashlib

from planner import files
from planner.plan.plan_file import Plan
from planner.scoring.bounds import SPACE
from planner.specs.base import with_fields


def bound_digest(plan: Plan) -> str:
    """SHA-256, its first 16 hex digits, of the plan's bounds and of what they were found from."""
    bounds = [plan.outcome.bound, *(step.outcome.bound for step in plan.steps if step.outcome)]
    found = files.json_text({"bounds": bounds, "made": plan.made, "uses": plan.uses})
    return hashlib.sha256(found.encode()).hexdigest()[:16]


def with_bound_digest(plan: Plan) -> Plan:
    """The plan with the digest of its bound, where that is one over the space of layouts."""
    if not bounded_by_space(plan):
        return plan
    return with_fields(plan, outcome=with_fields(plan.outcome, bound_digest=bound_digest(plan)))


def bounded_by_space(plan: Plan) -> bool:
    """Whether the bound of any step is over the space of layouts."""
    return SPACE in plan.outcome.bound_by.split("+")
