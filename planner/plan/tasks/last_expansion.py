"""The expansion that was made last: the check of a plan, its score and its run ask for the same one, one after another.

Of plans of several modules it takes longer than each of these.
"""

from planner.plan.plan_file import Plan, Step
from planner.plan.task import Task


class LastExpansion:
    """The tasks of one step, and the parts of its plan that they follow from."""

    def __init__(self) -> None:
        self.kept: tuple[Plan, Step, tuple[Task, ...]] | None = None

    def of(self, plan: Plan, step: Step) -> tuple[Task, ...] | None:
        """Return the tasks of this step, where it is the one that was kept: what it works on is the same objects, as
        the order of keys counts, and the rest is equal.
        """
        if self.kept is None:
            return None
        before, step_before, tasks = self.kept
        same = (
            step.micro_batches is step_before.micro_batches
            and step.order is step_before.order
            and plan.uses.items is before.uses.items
            and plan.uses.feeds is before.uses.feeds
        )
        equal = same and all(
            each == other
            for each, other in (
                (plan.groups, before.groups),
                (plan.layouts, before.layouts),
                (plan.edges, before.edges),
                (plan.uses.models, before.uses.models),
            )
        )
        return tasks if equal else None

    def keep(self, plan: Plan, step: Step, tasks: tuple[Task, ...]) -> None:
        """Keep this expansion in place of the one before."""
        self.kept = plan, step, tasks
