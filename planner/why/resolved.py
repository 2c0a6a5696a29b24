"""Solves a changed problem: the breakdown of its step, or the binding constraint."""

from collections.abc import Callable

from planner.errors import Infeasible
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.why.step_facts import StepFacts, step_facts

SolveAgain = Callable[[Inputs], Plan]  # solves, and checks the plan; raises Infeasible


class Infeasibility(Spec, omit_defaults=False):
    """Why a change is infeasible: the binding constraint, and the smallest change that would lift it."""

    message: str
    where: str
    fix: str


def solve_facts(inputs: Inputs, resolve: SolveAgain) -> StepFacts | Infeasibility:
    """The breakdown of the step of a problem's plan, or the binding constraint."""
    try:
        plan = resolve(inputs)
    except Infeasible as error:
        return Infeasibility(message=error.message, where=error.where, fix=error.fix)
    return step_facts(plan, score(plan))
