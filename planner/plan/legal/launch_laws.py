"""The law of the software: what trains a plan can launch it, by the knobs that the plan carries."""

from collections.abc import Iterator

from planner.plan.launchable import refusal_text
from planner.plan.launchable_plan import plan_refusals
from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Plan
from planner.specs.framework.software import ANY


def launch_laws(plan: Plan) -> Iterator[Violation]:
    """No layout and no step breaks a rule of the software (plan/launch_rules.py, plan/launchable_plan.py)."""
    for name, refusal in plan_refusals(plan):
        fix = f"{refusal.fix}; or uses.software: {{name: {ANY}}}, to price what nothing can launch"
        yield Violation(f"layouts.{name}", refusal_text(plan.uses.software.name, refusal, "plan"), fix)
