"""What packing did: packs of a plan whose job limits a rank's inputs, how full they are, and how few could do.

A pack is what one replica works on in one micro-batch. It has a budget of each resource (tokens, patches, frames), and
a sample needs some of each. No packing goes below the largest of: one pack; L2 of every resource alone (Martello and
Toth, Discrete Applied Mathematics 28, 1990), which is at least the sum over the budget, rounded up, and at least the
number of samples above half of it; and the size of sets of samples of which no two go together, though each two clash
over another resource.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.plan.plan_file import Plan, Step, assignments
from planner.specs.workload.items import UNITS_PER_TOKEN, input_count
from planner.units import percent, plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FilledModule:
    """Packs of one module over all steps."""

    module: str
    unit: str  # of its inputs: tokens, patches, frames
    budget: int  # inputs that a pack may hold
    packs: int  # that hold any
    fewest_packs: int  # that the budget needs at least
    fill: float  # share of its budget that such a pack holds on average
    fullest: int  # inputs of the fullest pack
    fewest_micro_batches: int  # over all steps, whichever replica has which item


@dataclass(frozen=True, slots=True)
class PackFill:
    """Packs of all limited modules."""

    micro_batches: int
    fewest: int  # micro-batches that the budgets need at least
    fewest_by: str  # the module whose budget needs them
    modules: tuple[FilledModule, ...]


def pack_fill(plan: Plan) -> PackFill | None:
    """How full the packs are; None where the plan limits no inputs, or its groups are no replicas of its layouts."""
    limits = plan.uses.limits
    if not (limits.inputs_per_rank or (limits.tokens_per_rank is not None and len(plan.layouts) > 1)):
        return None
    if any(group.split for group in plan.groups.values()):
        return None
    modules = [each for name in plan.layouts if (each := filled_module(plan, name))]
    if not modules:
        return None
    fullest = max(modules, key=lambda each: each.fewest_micro_batches)
    count = sum(len(step.micro_batches) for step in plan.steps)
    return PackFill(count, fullest.fewest_micro_batches, fullest.module, tuple(modules))


def filled_module(plan: Plan, name: str) -> FilledModule | None:
    """The packs of one module; None where its inputs are not limited, or offloaded ones are not counted."""
    import numpy as np

    spec, layout = plan.uses.models[name], plan.layouts[name]
    limit = plan.uses.limits.inputs_of(name, UNITS_PER_TOKEN[spec.input_unit])
    if limit is None or (name not in plan.uses.limits.inputs_per_rank and offloads(plan, name)):
        return None
    budget, replicas, fewest, rounds = limit * layout.tp * layout.cp, layout.dp * layout.replica, 0, 0
    inputs_of_pack: Counter[tuple[int, int, str]] = Counter()
    for number, step in enumerate(plan.steps):
        sizes = item_inputs(plan, step, name)
        loads = np.array([[size] for at in sizes.values() for size in at], dtype=np.int64).reshape(-1, 1)
        least = fewest_packs(loads, np.array([budget], dtype=np.int64))
        fewest, rounds = fewest + least, rounds - (-least // replicas)
        inputs_of_pack.update({(number, *at): sum(of) for at, of in sizes.items()})
    return FilledModule(
        module=name,
        unit=spec.input_unit,
        budget=budget,
        packs=len(inputs_of_pack),
        fewest_packs=fewest,
        fill=inputs_of_pack.total() / (max(1, len(inputs_of_pack)) * budget),
        fullest=max(inputs_of_pack.values(), default=0),
        fewest_micro_batches=rounds,
    )


def offloads(plan: Plan, name: str) -> bool:
    """Whether activations of some item of a module are in host memory."""
    return any(
        any(a.offload_shares(plan.layouts[name]))
        for step in plan.steps
        for micro_batch in step.micro_batches
        for a in assignments(plan, micro_batch)
        if a.module == name
    )


def item_inputs(plan: Plan, step: Step, name: str) -> dict[tuple[int, str], list[int]]:
    """Inputs of a module's items in a step, by micro-batch and group."""
    inputs: dict[tuple[int, str], list[int]] = {}
    for number, micro_batch in enumerate(step.micro_batches):
        for a in assignments(plan, micro_batch):
            if a.module == name and a.items:
                sizes = (input_count(plan.uses.models[name], plan.uses.items[name][item]) for item in a.items)
                inputs.setdefault((number, a.group), []).extend(sizes)
    return inputs


def pack_text(fill: PackFill) -> str:
    """`5 micro-batches, 5 at least (by vision's limit); llm 40 packs, 61.3 % of 16,384 tokens each; …`."""
    least = f"{plural(fill.micro_batches, 'micro-batch')}, {fill.fewest:,} at least (by {fill.fewest_by}'s limit)"
    return "; ".join([least, *map(module_text, fill.modules)])


def module_text(packed: FilledModule) -> str:
    """`llm 40 packs (25 at least), on average 61.3 % of 16,384 tokens`."""
    packs = f"{packed.module} {plural(packed.packs, 'pack')} ({packed.fewest_packs:,} at least)"
    return f"{packs}, on average {percent(packed.fill)} of {packed.budget:,} {packed.unit}"


def fewest_packs(loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]") -> int:
    """At least so many packs hold these loads, (samples, resources), none above its budget, (resources,)."""
    if not len(loads):
        return 0
    alone = [fewest_by_resource(loads[:, at], int(budget)) for at, budget in enumerate(budgets)]
    return max(1, *alone, largest_clash(loads, budgets))


def fewest_by_resource(sizes: "NDArray[np.int64]", budget: int) -> int:
    """L2: for a threshold k, samples above half of the budget have a pack each, and those between k and half of it
    fill what samples up to the budget less k leave.
    """
    import numpy as np

    rising = np.sort(sizes[sizes > 0])
    if not len(rising):
        return 0
    budget = min(budget, int(rising.sum()))  # more is of no use; products stay small
    sums = np.concatenate([[0], np.cumsum(rising)])
    half = int(np.searchsorted(2 * rising, budget, "right"))  # samples up to half of the budget
    starts = np.unique(np.searchsorted(rising, rising[:half], "left")) if half else np.array([0])
    thresholds = rising[starts] if half else np.array([1])
    fillable = np.maximum(half, np.searchsorted(rising, budget - thresholds, "right"))
    left = (fillable - half) * budget - (sums[fillable] - sums[half])
    over = np.maximum(0, sums[half] - sums[np.minimum(starts, half)] - left)
    return len(rising) - half + int((-(-over // budget)).max())


def largest_clash(loads: "NDArray[np.int64]", budgets: "NDArray[np.int64]") -> int:
    """Samples of which no two fit into a pack: those above half of one budget, and those above half of another that
    clash with each of these.
    """
    large, best = 2 * loads > budgets, 0
    for first in range(len(budgets)):
        own = large[:, first]
        best = max(best, int(own.sum()))
        if not own.any():
            continue
        clashing = (loads + loads[own].min(axis=0) > budgets).any(axis=1) & ~own
        best = max(best, *(int(own.sum() + (clashing & large[:, other]).sum()) for other in range(len(budgets))))
    return best
