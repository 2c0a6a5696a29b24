"""A plan with another order of its passes, and worth what it is with that."""

from planner.errors import InputError
from planner.plan.join import total_outcome, total_prediction
from planner.plan.legal import violations
from planner.plan.model import Made, Plan
from planner.plan.schedules import Slot
from planner.plan.schedules.explicit import printed
from planner.specs.base import changed
from planner.verify.score import outcome, prediction, require_memory, score
from planner.verify.worth import in_objective


def with_slots(plan: Plan, slots: list[list[Slot]], strategy: str, name: str) -> Plan:
    """Every step of a plan of one module in this order, of which `strategy` says where it is from.

    Raises InputError in the words of `name`, the file of the order, where the plan is not legal with it; Infeasible
    where it does not fit into memory.
    """
    (module,) = plan.layouts
    layout = plan.layouts[module]
    lines = printed(slots, max(1, len(layout.stages) // layout.pp))
    steps = [changed(step, order={module: lines}, outcome=None, prediction=None) for step in plan.steps]
    made = Made(by=plan.made.by, strategy=strategy, seed=plan.made.seed, effort=plan.made.effort)
    made = changed(made, batches=plan.made.batches, first_row=plan.made.first_row)
    ordered = changed(plan, made=made, instead=(), steps=tuple(steps))
    found = violations(ordered)
    if found:
        raise InputError(f"the plan cannot run this order: {found[0].message}", where=name, fix=found[0].fix)
    return in_objective(rescored(ordered), plan.outcome.objective)


def rescored(plan: Plan) -> Plan:
    """With the outcomes and predictions of the plan as it is, in seconds. Raises Infeasible."""
    scores = [score(plan, number) for number in range(len(plan.steps))]
    for each in scores:
        require_memory(plan, each)
    worth = [(outcome(each, ""), prediction(each)) for each in scores]
    if len(worth) == 1:
        return changed(plan, outcome=worth[0][0], prediction=worth[0][1])
    steps = [changed(step, outcome=o, prediction=p) for step, (o, p) in zip(plan.steps, worth, strict=True)]
    total, predicted = total_outcome([o for o, _ in worth]), total_prediction([p for _, p in worth])
    return changed(plan, outcome=total, prediction=predicted, steps=tuple(steps))
