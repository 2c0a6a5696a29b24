"""What a plan says about devices that this runtime does not enforce, for a warning at the start of a run."""

from planner.plan.plan_file import Plan, assignments


def unenforced_shares(plan: Plan) -> str:
    """A warning if the plan shares devices between tasks, else an empty string. A rank executes its tasks one after the
    other, each with its whole device: losses are the same, times are not those that were predicted.
    """
    micro_batches = (micro_batch for step in plan.steps for micro_batch in step.micro_batches)
    if all(a.share == 1 for micro_batch in micro_batches for a in assignments(plan, micro_batch)):
        return ""
    return "shares of devices are not enforced here: tasks run one after the other, each on its whole device"
