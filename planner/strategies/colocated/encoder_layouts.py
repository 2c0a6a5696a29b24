"""Layouts of encoders on all ranks, beside samples on groups that change: the quickest of each with a share of memory.

Backwards at once keep the items of one micro-batch alone, and passes fill what ranks wait for each other in every
micro-batch. Where backwards come last, all items are kept until then, so they are computed in one pass in front of the
first micro-batch.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.workload.items import UNITS_PER_TOKEN
from planner.strategies.assignment.encoder_orders import FRONT, EncoderOrder, Orders
from planner.strategies.modality.module_space import IN_PARTS, MEMORY_SHARES, WHOLE, ModuleSpace, encoder_space
from planner.units import GIB

FOLLOWING = EncoderOrder(at_once=True)  # of encoders whose passes run with those of who reads them


def encoder_layouts(inputs: Inputs) -> Iterator[tuple[dict[str, Layout], Orders]]:
    """Different layouts of all encoders and orders of their passes, those first whose backwards run at once, with most
    memory. Raises InputError for fixed fields that exclude each other.
    """
    names = [name for name in inputs.model.modules if name != inputs.module]
    found: list[tuple[dict[str, Layout], Orders]] = []
    for order, passes in ((FOLLOWING, IN_PARTS), (FRONT, WHOLE)):
        spaces = {
            name: synchronised(
                inputs, encoder_space(with_own_limit(inputs, name), name, inputs.cluster.size, False, passes)
            )
            for name in names
        }
        for share in MEMORY_SHARES:
            each = {name: quickest_layout(space, share / len(names)) for name, space in spaces.items()}
            layouts = {name: on_all_ranks(inputs, layout) for name, layout in each.items() if layout is not None}
            one = layouts, dict.fromkeys(names, order)
            if len(layouts) == len(names) and one not in found:
                found.append(one)
                yield one


def synchronised(inputs: Inputs, space: ModuleSpace) -> ModuleSpace:
    """The layouts whose ranks synchronise no more often than the job does: ZeRO-3 would in every micro-batch."""
    return space.where(space.layouts["zero"] < 3) if inputs.job.sync == "step" else space


def with_own_limit(inputs: Inputs, name: str) -> Inputs:
    """The job that limits the tokens of a rank as it limits an encoder's inputs, where it says these."""
    limits, unit = inputs.job.limits, inputs.model.modules[name].input_unit
    if name not in limits.inputs_per_rank:
        return inputs
    tokens = max(1, limits.inputs_per_rank[name] // UNITS_PER_TOKEN[unit])
    return replace(inputs, job=with_fields(inputs.job, limits=with_fields(limits, tokens_per_rank=tokens)))


def quickest_layout(space: ModuleSpace, share: float) -> Layout | None:
    """The quickest layout that fits into this share of a rank's memory; None where none does. What a device takes once
    for all modules is not part of it.
    """
    problem = space.problem
    context = problem.accounting.context_gib * GIB
    options = space.quickest(1, beside=(1.0 - share) * problem.allowed - context)
    return options[0].layout if options else None


def on_all_ranks(inputs: Inputs, layout: Layout) -> Layout:
    """The layout of an encoder on all ranks."""
    return with_fields(layout, ranks=Ranks(range(inputs.cluster.size)), schedule=None, micro_batch=1)
