"""What there is to place: passes of encoders, and the LLM's passes on its first stage, beside which they may run."""

from collections import defaultdict
from dataclasses import dataclass

from planner.costs import Pricing
from planner.plan.plan_file import Plan, assignments
from planner.plan.task import PASS_PHASES, Phase
from planner.plan.tasks.expand import expand


@dataclass(frozen=True, slots=True)
class Slot:
    """One pass of the LLM on the ranks of its first stage."""

    phase: Phase
    micro_batch: int
    stage: int  # a chunk of layers
    exchanged: float  # seconds in which it waits for exchanges


@dataclass(frozen=True, slots=True)
class EncoderPass:
    """The forwards, or the backwards, of an encoder in one micro-batch, on all ranks that work on it."""

    module: str
    phase: Phase  # F or B
    micro_batch: int
    computed: float  # seconds without exchanges, of the slowest group on one stage
    begin: int  # the slot in front of which it may stand at the earliest: gradients are there
    end: int  # the slot that waits for it: the LLM reads; of a backward the number of slots


@dataclass(frozen=True, slots=True)
class GapProblem:
    """The passes to place, those of each phase in the order of their micro-batches, and the slots in their order."""

    passes: tuple[EncoderPass, ...]
    slots: tuple[Slot, ...]


def gap_problem(plan: Plan, module: str, pricing: Pricing) -> GapProblem:
    """What there is to place in a plan of one step; `module`: the LLM."""
    tasks = expand(plan)
    costs = pricing.with_concurrency(tasks).each_alone(tasks)
    works = defaultdict[tuple[str, Phase, int], float](float)
    slots, rank = list[Slot](), plan.layouts[module].ranks[0]
    stages = {layers: number for number, layers in enumerate(plan.layouts[module].stages)}
    for (kind, work), cost in zip(tasks.kinds_and_works(range(len(tasks))), costs, strict=True):
        if kind.phase not in PASS_PHASES or work.micro_batch is None:
            continue
        if kind.module == module and rank in kind.ranks:
            slots.append(Slot(kind.phase, work.micro_batch, stages[kind.layers], cost.comm))
        elif kind.module != module:
            key = kind.module, kind.phase, work.micro_batch
            works[key] = max(works[key], cost.value - cost.comm)
    first = {slot.micro_batch: at for at, slot in reversed([*enumerate(slots)]) if (slot.phase, slot.stage) == ("F", 0)}
    last = {slot.micro_batch: at for at, slot in enumerate(slots) if slot.phase in "BI" and slot.stage == 0}
    readers = reading_micro_batches(plan, module)
    passes = list[EncoderPass]()
    for (name, phase, number), computed in works.items():
        read = readers.get((name, number), set())
        if phase == "F" and read:
            passes.append(EncoderPass(name, phase, number, computed, 0, first[min(read)]))
        elif phase == "B" and read:
            passes.append(EncoderPass(name, phase, number, computed, 1 + last[max(read)], len(slots)))
    return GapProblem(tuple(sorted(passes, key=lambda each: (each.phase, each.end, each.begin))), tuple(slots))


def reading_micro_batches(plan: Plan, module: str) -> dict[tuple[str, int], set[int]]:
    """Encoder, its micro-batch → the micro-batches in which the LLM reads what it computes then itself."""
    (step,) = plan.steps
    works = [(number, a) for number, cells in enumerate(step.micro_batches) for a in assignments(plan, cells)]
    at = {item: number for number, a in works if a.module == module for item in a.items}
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for edge in (edge for edge in plan.edges if edge.target == module):
        feeds = plan.feeds_of(edge)
        for number, a in works:
            if a.module == edge.source:
                found[a.module, number] |= {at[reader] for item in a.items for reader in feeds.get(item, ())}
    return {key: numbers for key, numbers in found.items() if numbers}
