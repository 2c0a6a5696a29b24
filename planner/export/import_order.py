"""A plan with another order of its pipeline passes, scored."""

from planner.errors import InputError
from planner.plan.join_plans import total_outcome, total_prediction
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.plan.schedules import Slot
from planner.plan.schedules.explicit import slot_lines
from planner.scoring import outcome_of, prediction_of, require_memory, restate_in_objective, score
from planner.specs.base import with_fields


def with_order(plan: Plan, slots: list[list[Slot]], strategy: str, name: str) -> Plan:
    """A plan of one module with every step in this order; `strategy` names where the order is from.

    Raises InputError, calling the order's file `name`, where the plan is not legal with it; Infeasible where it does
    not fit into memory.
    """
    (module,) = plan.layouts
    layout = plan.layouts[module]
    lines = slot_lines(slots, max(1, len(layout.stages) // layout.pp))
    steps = [with_fields(step, order={module: lines}, outcome=None, prediction=None) for step in plan.steps]
    made = with_fields(plan.made, strategy=strategy, decided={**plan.made.decided, "order": strategy})
    ordered = with_fields(plan, made=made, alternatives=(), steps=tuple(steps))
    problems = violations(ordered)
    if problems:
        raise InputError(f"the plan cannot run this order: {problems[0].message}", where=name, fix=problems[0].fix)
    return restate_in_objective(rescored_plan(ordered), plan.outcome.objective)


def rescored_plan(plan: Plan) -> Plan:
    """The plan with the outcomes and predictions that it has now, in seconds. Raises Infeasible."""
    scores = [score(plan, number) for number in range(len(plan.steps))]
    for each in scores:
        require_memory(plan, each)
    results = [(outcome_of(each, ""), prediction_of(each)) for each in scores]
    if len(results) == 1:
        return with_fields(plan, outcome=results[0][0], prediction=results[0][1])
    steps = [with_fields(step, outcome=o, prediction=p) for step, (o, p) in zip(plan.steps, results, strict=True)]
    total, predicted = total_outcome([o for o, _ in results]), total_prediction([p for _, p in results])
    return with_fields(plan, outcome=total, prediction=predicted, steps=tuple(steps))
