"""Does a step's order let every module do all that it has to? Of orders that are written out, slot by slot."""

from collections.abc import Iterator, Sequence

from planner.errors import InputError
from planner.plan.model import Plan, Step, assignments
from planner.plan.names import Violation
from planner.plan.schedules import FORWARD_ONLY, Slot
from planner.plan.schedules.explicit import printed
from planner.plan.words import recompute_text
from planner.plan.work import module_work


def order_laws(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """For each module whose order the step gives, or its layout."""
    feeding = {edge.source for edge in plan.edges}
    for module in plan.layouts:
        order, place = plan.order_of(step, module), f"{where}.{module}"
        if module in feeding:
            yield from placed_laws(plan, step, module, f"{where}.place")
            continue
        if order is None:
            continue
        place = place if module in step.order else f"layouts.{module}.schedule"
        work = module_work(plan, step, module)
        try:
            slots = work.slots(order)
        except InputError as error:
            yield Violation(error.where.replace("order", place, 1), error.message, error.fix)
            continue
        if not isinstance(order, str):
            yield from slot_laws(slots, len(work.rows), len(work.stages) // work.pipeline, place)
        if any(phase == "I" for of_rank in slots for phase, _, _ in of_rank):
            yield from cut_laws(plan, step, module, place)
        if order == FORWARD_ONLY:
            yield from forward_laws(plan, module, place)


def slot_laws(slots: Sequence[Sequence[Slot]], micro_batches: int, chunks: int, where: str) -> Iterator[Violation]:
    """On each rank every micro-batch goes once through each chunk: F, then B, or I and then W."""
    names = [line.split() for line in printed(slots, chunks)]
    for rank, of_rank in enumerate(slots):
        at: dict[Slot, int] = {}
        for number, slot in enumerate(of_rank):
            if slot in at:
                yield Violation(f"{where}[{rank}]", f"`{names[rank][number]}` comes twice", "write it once")
            elif slot[1] >= micro_batches:
                message = f"`{names[rank][number]}`: there are {micro_batches} micro-batches, and the first is 0"
                yield Violation(f"{where}[{rank}]", message, "remove it, or add the micro-batch")
            at[slot] = number
        for chunk in range(chunks):
            for row in range(micro_batches):
                stage = chunk * len(slots) + rank
                broken = passes_wrong(*(at.get((phase, row, chunk)) for phase in ("F", "B", "I", "W")))
                if broken:
                    message = f"micro-batch {row} on stage {stage}: {broken}"
                    yield Violation(f"{where}[{rank}]", message, "F once, and after it B, or I and later W")


def passes_wrong(f: int | None, b: int | None, i: int | None, w: int | None) -> str:
    """What is wrong with where the passes of a micro-batch stand; nothing if nothing is."""
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


def cut_laws(plan: Plan, step: Step, module: str, where: str) -> Iterator[Violation]:
    """Where backward is in two, activations wait for W: they are neither made again nor brought back only for I."""
    layout = plan.layouts[module]
    if {*layout.recomputes(range(plan.uses.models[module].layers))} - {"none"}:
        how = recompute_text(layout)
        message = f"recompute {how} makes activations again in I, and they would be kept for W all the same"
        yield Violation(where, message, "recompute: none, or B in place of I and W")
    placed = (a for row in step.micro_batches for a in assignments(plan, row) if a.module == module)
    if any(share for a in placed for share in a.offload_in(layout)):
        message = "what is offloaded is brought back while a whole backward lasts, and I is a part of one"
        yield Violation(where, message, "set offload to 0, or write B in place of I and W")


def placed_laws(plan: Plan, step: Step, module: str, where: str) -> Iterator[Violation]:
    """Where placements cut a backward in two."""
    refs = [(number, place.moved) for number, place in enumerate(step.places)]
    halving = [number for number, ref in refs if ref.module == module and ref.phase in ("I", "W")]
    if halving:
        yield from cut_laws(plan, step, module, f"{where}[{halving[0]}]")


def forward_laws(plan: Plan, module: str, where: str) -> Iterator[Violation]:
    """Where nothing comes back: no encoder waits for it, and gathers are not for two passes."""
    fed = [edge.source for edge in plan.edges if edge.target == module]
    if fed:
        message = f"`{fed[0]}` waits for the gradients of `{module}`, which has none"
        yield Violation(where, message, "an order with backwards")
    if plan.layouts[module].zero == 3:
        message = "ZeRO-3's gathers are priced for a forward and its backward"
        yield Violation(where, message, "zero: 0, or an order with backwards")
