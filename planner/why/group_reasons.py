"""Explains the time of a group: its load in every micro-batch in which it works."""

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import Spec
from planner.units import first_few
from planner.why.group_loads import GroupLoad, group_loads
from planner.why.plan_problem import single_step


class WhyGroup(Spec, omit_defaults=False):
    """The answer for a group of a step."""

    plan: str
    step: int
    group: str
    value: float  # seconds of the step
    sizes: dict[str, dict[int, int]]  # tokens of its items, by module
    loads: tuple[GroupLoad, ...]  # one for every micro-batch that it works in


def why_group(plan: Plan, number: int, name: str) -> WhyGroup:
    """The answer for one group of a step. Raises InputError when the step has no such group."""
    step = single_step(plan, number)
    if name not in step.groups:
        fix = f"one of {first_few([*step.groups])}"
        raise InputError(f"step {number} of the plan has no group `{name}`", where="GROUP", fix=fix)
    scored = score(step)
    found = tuple(load for load in group_loads(step, scored) if load.group == name)
    return WhyGroup(
        plan=plan.name,
        step=number,
        group=name,
        value=scored.step_seconds,
        sizes={
            load.module: {
                item: step.uses.tokens(load.module, item)
                for each in found
                if each.module == load.module
                for item in each.items
            }
            for load in found
        },
        loads=found,
    )
