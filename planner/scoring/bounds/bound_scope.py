"""Which layouts a bound over a space of layouts is over, in words: what is left out changes numerics, or is no quicker
wherever it was tried.
"""

from collections.abc import Iterator

from planner.plan.plan_file import Plan
from planner.scoring.bounds.step_bounds import SPACE
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.parallelism import Parallelism
from planner.units import listed


def bound_over(plan: Plan) -> str:
    """All layouts that a bound speaks of, as `all megatron layouts without fp8 or tp across nodes`; "" where it is none
    over a space of layouts.
    """
    if plan.outcome.bound_by != SPACE:
        return ""
    several = len(plan.layouts) > 1
    if several and not plan.made.decided:
        return "all assignments of samples to these layouts"
    what = "layouts of every module, on any ranks," if several else "layouts"
    kept = ["with what the job fixes"] if any(plan.uses.fix.layouts.values()) else []
    left = [*left_out(plan)]
    without = [f"without {listed(left, 'or')}"] if left else []
    return f"all {plan.uses.software.name} {' '.join([what, ', '.join([*kept, *without])])}".rstrip(" ,")


def left_out(plan: Plan) -> Iterator[str]:
    """Yield what the software can launch, and no search looks at: of several modules, for the one that reads them."""
    name = next(each for each in plan.layouts if each not in {edge.source for edge in plan.edges})
    uses, fixed, module = plan.uses, plan.uses.fix.layouts.get(name, Parallelism()), plan.uses.models[name]
    knobs, kind = uses.software.knobs, device_of_rank(uses.cluster, 0)
    within = min(each.per_node for each in uses.cluster.ranks)
    if "fp8" in knobs.dtypes and "fp8" in uses.devices[kind].tflops and plan.layouts[name].dtype != "fp8":
        yield "fp8"
    if "bf16" in knobs.gradients and plan.layouts[name].gradients != "bf16":
        yield "bf16 gradients"
    if knobs.tp and False in knobs.sequence_parallel and fixed.sequence_parallel is None and fixed.tp != 1:
        yield "tp without sequence parallelism"
    if knobs.tp and plan.size > within and fixed.tp is None:
        yield "tp across nodes"
    if {*knobs.cp} & {"ulysses", "both"} and fixed.ulysses is None and fixed.cp != 1:
        yield "ring cp around Ulysses groups smaller than a node"
    if knobs.replica and fixed.replica is None:
        yield "ZeRO shard groups other than all ranks or a node"
    if module.routed_experts and "other" in knobs.etp and fixed.etp is None:
        yield "etp other than 1 or tp"
    several, unlike = len(plan.layouts) > 1, len({*map(str, uses.items[name].values())}) > 1
    if unlike and not several and fixed.micro_batch is None:
        yield "micro-batches between powers of two"
    whole = knobs.offload_shares == "whole" or (several and knobs.offload_shares == "none")
    if knobs.offload != "none" and whole and fixed.offload is None:
        yield "offloaded activations"
