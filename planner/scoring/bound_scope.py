"""Which layouts a bound over the space of one module's layouts is over, in words: what is left out changes numerics, or
is no quicker wherever it was tried.
"""

from planner.plan.plan_file import Plan
from planner.scoring.bounds import SPACE


def bound_over(plan: Plan) -> str:
    """All layouts that a bound speaks of; "" where it is none over the space of layouts of one module."""
    if plan.outcome.bound_by != SPACE or len(plan.layouts) > 1:
        return ""
    ((name, layout),) = plan.layouts.items()
    lengths, knobs = {*map(str, plan.uses.items[name].values())}, plan.uses.software.knobs
    left = [
        f"dtype {layout.dtype}",
        f"gradients {layout.gradients}",
        *(["sequence_parallel"] if layout.sequence_parallel else []),
        "tp within a node",
        "ulysses of 1, a node's ranks or most",
        "replica of 1 or by node",
        "etp of 1 or tp",
        *(["powers of two as micro_batch"] if len(lengths) > 1 else []),
        *(["activations on the device"] if knobs.offload != "none" and knobs.offload_shares == "whole" else []),
    ]
    kept = "what the job fixes, " if plan.uses.fix.layouts.get(name) else ""
    return f"all {plan.uses.software.name} layouts with {kept}{', '.join(left)}"
