"""A plan with another order of its pipeline passes, scored anew."""

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
    """A plan of one module with every step in this order; `strategy` names where the order is from.

    Raises InputError, calling the order's file `name`, where the plan is not legal with it; Infeasible where it does
    not fit into memory.
    """
    (module,) = plan.layouts
    layout = plan.layouts[module]
    lines = printed(slots, max(1, len(layout.stages) // layout.pp))
    steps = [changed(step, order={module: lines}, outcome=None, prediction=None) for step in plan.steps]
    made = Made(by=plan.made.by, strategy=strategy, seed=plan.made.seed, effort=plan.made.effort)
    made = changed(made, batches=plan.made.batches, first_row=plan.made.first_row)
    ordered = changed(plan, made=made, alternatives=(), steps=tuple(steps))
    problems = violations(ordered)
    if problems:
        raise InputError(f"the plan cannot run this order: {problems[0].message}", where=name, fix=problems[0].fix)
    return in_objective(rescored_plan(ordered), plan.outcome.objective)


def rescored_plan(plan: Plan) -> Plan:
    """The plan with the outcomes and predictions that it has now, in seconds. Raises Infeasible."""
    scores = [score(plan, number) for number in range(len(plan.steps))]
    for each in scores:
        require_memory(plan, each)
    results = [(outcome(each, ""), prediction(each)) for each in scores]
    if len(results) == 1:
        return changed(plan, outcome=results[0][0], prediction=results[0][1])
    steps = [changed(step, outcome=o, prediction=p) for step, (o, p) in zip(plan.steps, results, strict=True)]
    total, predicted = total_outcome([o for o, _ in results]), total_prediction([p for _, p in results])
    return changed(plan, outcome=total, prediction=predicted, steps=tuple(steps))
