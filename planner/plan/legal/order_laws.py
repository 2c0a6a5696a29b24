"""Laws of orders: in a schedule written out slot by slot, every module runs all its passes, in a valid order."""

from collections.abc import Iterator, Sequence

from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Plan, Step, assignments
from planner.plan.schedules import FORWARD_ONLY, Slot
from planner.plan.schedules.explicit import slot_lines
from planner.plan.tasks.module_work import module_work


def order_laws(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """Check the order of each module, from the step or else from its layout."""
    feeding = {edge.source for edge in plan.edges}
    for module in plan.layouts:
        order, key = plan.order_of(step, module), f"{where}.{module}"
        if module in feeding:
            yield from placement_laws(plan, step, module, f"{where}.place")
            continue
        if order is None:
            continue
        key = key if module in step.order else f"layouts.{module}.schedule"
        work = module_work(plan, step, module)
        try:
            slots = work.slots(order)
        except InputError as error:
            yield Violation(error.where.replace("order", key, 1), error.message, error.fix)
            continue
        if not isinstance(order, str):
            yield from slot_laws(slots, len(work.micro_batches), len(work.stages) // work.pipeline_ranks, key)
        if any(phase == "I" for of_rank in slots for phase, _, _ in of_rank):
            yield from split_backward_laws(plan, step, module, key)
        if order == FORWARD_ONLY:
            yield from forward_only_laws(plan, module, key)


def slot_laws(slots: Sequence[Sequence[Slot]], micro_batches: int, chunks: int, where: str) -> Iterator[Violation]:
    """On each rank every micro-batch goes once through each chunk: F, then B; or F, then I and W."""
    names = [line.split() for line in slot_lines(slots, chunks)]
    for rank, of_rank in enumerate(slots):
        position: dict[Slot, int] = {}
        for number, slot in enumerate(of_rank):
            if slot in position:
                yield Violation(f"{where}[{rank}]", f"`{names[rank][number]}` is there twice", "remove one of them")
            elif slot[1] >= micro_batches:
                message = f"`{names[rank][number]}`: there are {micro_batches} micro-batches, and the first is 0"
                yield Violation(f"{where}[{rank}]", message, "remove it, or add the micro-batch")
            position[slot] = number
        for chunk in range(chunks):
            for micro_batch in range(micro_batches):
                stage = chunk * len(slots) + rank
                fault = pass_order_fault(*(position.get((phase, micro_batch, chunk)) for phase in ("F", "B", "I", "W")))
                if fault:
                    message = f"micro-batch {micro_batch} on stage {stage}: {fault}"
                    yield Violation(f"{where}[{rank}]", message, "F once, and after it B, or I and later W")


def pass_order_fault(f: int | None, b: int | None, i: int | None, w: int | None) -> str:
    """Return what is wrong with the positions of a micro-batch's passes; empty if nothing is."""
    if f is None:
        return "there is no F"
    if b is not None and (i is not None or w is not None):
        return "there is B, and I or W besides"
    if b is None and (i is None or w is None):
        return "there is no B" if i is None and w is None else f"there is no {'I' if i is None else 'W'}"
    if b is not None:
        return "B comes before F" if b < f else ""
    assert i is not None and w is not None
    return "I comes before F" if i < f else "W comes before I" if w < i else ""


def split_backward_laws(plan: Plan, step: Step, module: str, where: str) -> Iterator[Violation]:
    """Where backward is split into I and W, activations are kept for W: they are neither recomputed nor offloaded."""
    layout = plan.layouts[module]
    if {*layout.recompute_counts(range(plan.uses.models[module].layers))} - {"none"}:
        how = flow_text(layout.recompute)
        message = f"recompute {how} recomputes activations in I, and they would be kept for W all the same"
        yield Violation(where, message, "recompute: none, or B in place of I and W")
    module_assignments = (
        a for micro_batch in step.micro_batches for a in assignments(plan, micro_batch) if a.module == module
    )
    if any(share for a in module_assignments for share in a.offload_shares(layout)):
        message = "offloaded activations are fetched during a whole backward, and I is a part of one"
        yield Violation(where, message, "set offload to 0, or write B in place of I and W")


def placement_laws(plan: Plan, step: Step, module: str, where: str) -> Iterator[Violation]:
    """The laws of a backward in two, where placements split it."""
    refs = [(number, placement.moved) for number, placement in enumerate(step.placements)]
    splitting = [number for number, ref in refs if ref.module == module and ref.phase in ("I", "W")]
    if splitting:
        yield from split_backward_laws(plan, step, module, f"{where}[{splitting[0]}]")


def forward_only_laws(plan: Plan, module: str, where: str) -> Iterator[Violation]:
    """Forward-only orders: no encoder waits for gradients, and there is no ZeRO-3, whose gathers are priced for two
    passes.
    """
    fed = [edge.source for edge in plan.edges if edge.target == module]
    if fed:
        message = f"`{fed[0]}` waits for the gradients of `{module}`, which has none"
        yield Violation(where, message, "an order with backwards")
    if plan.layouts[module].zero == 3:
        message = "ZeRO-3's gathers are priced for a forward and its backward"
        yield Violation(where, message, "zero: 0, or an order with backwards")
