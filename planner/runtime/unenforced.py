"""What a plan says of devices that this runtime does not see to: to be told where a run starts."""

from planner.plan.model import Plan, assignments


def unenforced(plan: Plan) -> str:
    """A line for a person; empty where there is nothing. A rank does its tasks one after the other, each with all of
    its device: numbers are the same, seconds are not those that were predicted.
    """
    rows = (row for step in plan.steps for row in step.micro_batches)
    if all(a.share == 1 for row in rows for a in assignments(plan, row)):
        return ""
    return "shares of devices are a hint here: each task has its whole device, one after the other"
