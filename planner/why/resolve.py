"""Solving a changed problem: the step that it gives, or what keeps it from having any."""

from collections.abc import Callable

from planner.errors import Infeasible
from planner.plan.model import Plan
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.verify.score import score
from planner.why.facts import Facts, facts

Resolve = Callable[[Inputs], Plan]  # solve and verify; raises Infeasible


class Binding(Spec, omit_defaults=False):
    """Why nothing satisfies a change: what binds, and the smallest change that would free it."""

    message: str
    where: str
    fix: str


def solved(inputs: Inputs, resolve: Resolve) -> Facts | Binding:
    """What a problem's plan is made of; or what binds."""
    try:
        plan = resolve(inputs)
    except Infeasible as error:
        return Binding(message=error.message, where=error.where, fix=error.fix)
    return facts(plan, score(plan))
