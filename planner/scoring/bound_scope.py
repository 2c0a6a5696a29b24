"""Which layouts a bound over a space of layouts is over, in words: what is left out changes numerics, or is no quicker
wherever it was tried.
"""

from planner.plan.plan_file import Plan
from planner.scoring.bounds import SPACE


def bound_over(plan: Plan) -> str:
    """All layouts that a bound speaks of; "" where it is none over a space of layouts. Of several modules all layouts
    and ranks of those that feed others are in it, and all assignments.
    """
    if plan.outcome.bound_by != SPACE:
        return ""
    several, feeding = len(plan.layouts) > 1, {edge.source for edge in plan.edges}
    if several and not plan.made.decided:
        return "all assignments to these layouts"
    name = next(name for name in plan.layouts if name not in feeding)
    layout, knobs = plan.layouts[name], plan.uses.software.knobs
    unlike = len({*map(str, plan.uses.items[name].values())}) > 1
    left = [
        f"dtype {layout.dtype}",
        f"gradients {layout.gradients}",
        *(["sequence_parallel"] if layout.sequence_parallel else []),
        "tp within a node",
        "ulysses of 1, a node's ranks or most",
        "replica of 1 or by node",
        "etp of 1 or tp",
        *(["powers of two as micro_batch, or a replica's samples in up to four"] if unlike and not several else []),
        *(["activations on the device"] if knobs.offload_shares == "whole" else []),
    ]
    kept = "what the job fixes, " if plan.uses.fix.layouts else ""
    others = " of the module of the samples" if several else ""
    return f"all {plan.uses.software.name} layouts with {kept}{', '.join(left)}{others}"
