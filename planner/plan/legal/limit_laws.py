"""Laws of what a job and its software allow: inputs of a module that ranks may hold, and what can be launched."""

from collections.abc import Iterator

from planner.plan.launchable.launch_refusals import plan_refusals, refusal_text
from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Assignment, Group, Plan
from planner.specs.framework.software import ANY
from planner.specs.workload.items import input_count


def limit_name_laws(plan: Plan) -> Iterator[Violation]:
    """Limits are of modules that the plan has."""
    for name in plan.uses.limits.inputs_per_rank:
        if name not in plan.layouts:
            where = f"uses.limits.inputs_per_rank.{name}"
            yield Violation(where, f"no layout is called `{name}`", f"one of {', '.join(plan.layouts)}")


def input_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """A group has at most the inputs that the job allows its module; offloaded ones count."""
    limit, module = plan.uses.limits.inputs_per_rank.get(a.module), plan.uses.models[a.module]
    if limit is None:
        return
    ranks = group.resolved_split(plan.layouts[a.module]).degree * plan.layouts[a.module].tp
    held = sum(input_count(module, plan.uses.items[a.module][item]) for item in a.items)
    if held > limit * ranks:
        holds = f"group {a.group} holds {held:,} {module.input_unit} of `{a.module}`"
        message = f"{holds}, its {ranks} ranks may hold {limit * ranks:,}"
        yield Violation(where, message, "move items to another group or micro-batch")


def launch_laws(plan: Plan) -> Iterator[Violation]:
    """No layout and no step breaks a rule of the software (plan/launchable)."""
    for name, refusal in plan_refusals(plan):
        fix = f"{refusal.fix}; or uses.software: {{name: {ANY}}}, to price what nothing can launch"
        yield Violation(f"layouts.{name}", refusal_text(plan.uses.software.name, refusal, "plan"), fix)
