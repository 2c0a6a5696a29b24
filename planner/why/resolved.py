"""Solves a changed problem: the breakdown of its step, or the binding constraint."""

from collections.abc import Callable

from planner.errors import Infeasible
from planner.layouts import fixed_fields
from planner.plan.launchable.launch_refusals import first_refusal, refusal_text
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.strategies.static import impossible_fields
from planner.why.step_facts import StepFacts, step_facts

SolveAgain = Callable[[Inputs], Plan]  # solves, and checks the plan; raises Infeasible


class Infeasibility(Spec, omit_defaults=False):
    """Why a change is infeasible: the binding constraint, and the smallest change that would lift it."""

    message: str
    where: str
    fix: str
    illegal: bool = False  # whether a job that fixes it is refused as input: no memory or network would do


def solve_facts(inputs: Inputs, resolve: SolveAgain) -> StepFacts | Infeasibility:
    """The breakdown of the step of a problem's plan, or the binding constraint."""
    refusal = first_refusal(inputs, fixed_fields(inputs))
    if refusal:
        message = refusal_text(inputs.software.name, refusal)
        return Infeasibility(message=message, where="software", fix=refusal.fix, illegal=True)
    impossible = impossible_fields(inputs)
    if impossible:
        return Infeasibility(message=impossible[0], where="layouts", fix=impossible[1], illegal=True)
    try:
        plan = resolve(inputs)
    except Infeasible as error:
        return Infeasibility(message=error.message, where=error.where, fix=error.fix)
    return step_facts(plan, score(plan))
