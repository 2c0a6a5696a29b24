"""The lower bound of a step that waits for its data loader.

Whatever is decided, each sample is loaded once, on no more than all cores of every node (`least_loading`). Beside GPUs
the step takes no less than that, nor than its passes; on the cores that train, no less than both together.
"""

from planner.costs import beside_training, least_loading
from planner.plan.plan_file import Plan
from planner.scoring.bounds.step_bounds import Bound

LOADER = "loader"


def bound_with_loader(plan: Plan, number: int, bound: Bound) -> Bound:
    """The bound of a step whose passes are bounded by `bound`."""
    least = least_loading(plan, number)
    if not beside_training(plan):
        return Bound(bound.seconds + least, f"{bound.by}+{LOADER}")
    return Bound(least, LOADER) if least > bound.seconds else bound
