"""What packing did: packs of a plan whose job limits a rank's inputs, how full they are, and how few could do.

A pack is what one replica works on in one micro-batch.
"""

from collections import Counter
from dataclasses import dataclass

from planner.plan.pack_bound import fewest_packs
from planner.plan.plan_file import Plan, Step, assignments
from planner.specs.workload.items import UNITS_PER_TOKEN, input_count


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
    found = [each for name in plan.layouts if (each := filled_module(plan, name))]
    if not found:
        return None
    fullest = max(found, key=lambda each: each.fewest_micro_batches)
    count = sum(len(step.micro_batches) for step in plan.steps)
    return PackFill(count, fullest.fewest_micro_batches, fullest.module, tuple(found))


def filled_module(plan: Plan, name: str) -> FilledModule | None:
    """The packs of one module; None where its inputs are not limited, or offloaded ones are not counted."""
    import numpy as np

    spec, layout = plan.uses.models[name], plan.layouts[name]
    limit = plan.uses.limits.inputs_of(name, UNITS_PER_TOKEN[spec.input_unit])
    if limit is None or (name not in plan.uses.limits.inputs_per_rank and offloads(plan, name)):
        return None
    budget, replicas, fewest, rounds = limit * layout.tp * layout.cp, layout.dp * layout.replica, 0, 0
    held: Counter[tuple[int, int, str]] = Counter()
    for number, step in enumerate(plan.steps):
        sizes = item_inputs(plan, step, name)
        loads = np.array([[size] for at in sizes.values() for size in at], dtype=np.int64).reshape(-1, 1)
        least = fewest_packs(loads, np.array([budget], dtype=np.int64))
        fewest, rounds = fewest + least, rounds - (-least // replicas)
        held.update({(number, *at): sum(of) for at, of in sizes.items()})
    return FilledModule(
        module=name,
        unit=spec.input_unit,
        budget=budget,
        packs=len(held),
        fewest_packs=fewest,
        fill=held.total() / (max(1, len(held)) * budget),
        fullest=max(held.values(), default=0),
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
    found: dict[tuple[int, str], list[int]] = {}
    for number, micro_batch in enumerate(step.micro_batches):
        for a in assignments(plan, micro_batch):
            if a.module == name and a.items:
                sizes = (input_count(plan.uses.models[name], plan.uses.items[name][item]) for item in a.items)
                found.setdefault((number, a.group), []).extend(sizes)
    return found
