"""What there is to place: passes of encoders, and the LLM's passes on its first stage, beside which they may run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from planner.costs import NO_COST, Cost, Pricing, step_prices, total_cost
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Plan, assignments
from planner.plan.task import PASS_PHASES, Phase
from planner.plan.tasks.expand import expand
from planner.plan.tokens.encoder_outputs import layout_stages


@dataclass(frozen=True, slots=True)
class Slot:
    """One pass of the LLM on the ranks of its first stage."""

    phase: Phase
    micro_batch: int
    stage: int  # a chunk of layers
    computed: float  # seconds without exchanges
    exchanged: float  # seconds in which it waits for exchanges


@dataclass(frozen=True, slots=True)
class EncoderPass:
    """The forwards, or the backwards, of an encoder in one micro-batch, on all ranks that work on it."""

    module: str
    phase: Phase  # F or B
    micro_batch: int
    computed: float  # seconds without exchanges, of the slowest group on one stage
    exchanged: float  # seconds in which that waits for exchanges
    begin: int  # the slot in front of which it may stand at the earliest: gradients are there
    end: int  # the slot that waits for it: the LLM reads; of a backward the number of slots
    stages: int = 1  # of its encoder, each of which takes that long

    @property
    def route(self) -> range:
        """The stages in the order in which it goes through them."""
        return range(self.stages) if self.phase == "F" else range(self.stages - 1, -1, -1)


@dataclass(frozen=True, slots=True)
class GapProblem:
    """The passes to place, those of each phase in the order in which they are due, and the slots in their order."""

    module: str  # the LLM
    passes: tuple[EncoderPass, ...]
    slots: tuple[Slot, ...]
    once: float  # seconds that the LLM's first stage exchanges once a step: gradients, and updated weights
    work: tuple[float, float]  # seconds of compute and of exchange of all passes, on the ranks that have most of each

    def hidden_at_most(self, waited: float) -> float:
        """Seconds that no order of the passes hides more than, each gap filled at its rate, and nothing waited for; by
        the slots of one replica: of unlike replicas, about. `waited`: of the shorter of two that run side by side, the
        share that takes time all the same.
        """
        computed, exchanged = self.work
        beside = fsum(slot.exchanged for slot in self.slots) + self.once
        return (1.0 - waited) * (min(computed, beside) + min(exchanged, fsum(slot.computed for slot in self.slots)))


def gap_problem(plan: Plan, module: str, pricing: Pricing) -> GapProblem:
    """What there is to place in a plan of one step; `module`: the LLM."""
    tasks = expand(plan, 0, identical_groups(plan, 0).ranks)
    costs = step_prices(pricing, tasks).each_alone(tasks)
    slowest: dict[tuple[str, Phase, int], Cost] = {}
    work: dict[int, Cost] = {}
    slots, once, rank = list[Slot](), 0.0, plan.layouts[module].ranks[0]
    whole = layout_stages(plan.uses.models[module], plan.layouts[module])
    stage_of = {layers: number for number, layers in enumerate(whole)}
    for (kind, on), cost in zip(tasks.kinds_and_works(range(len(tasks))), costs, strict=True):
        own = kind.module == module and rank in kind.ranks
        if on.micro_batch is None:
            once += cost.value if own and kind.phase in ("sync", "gather") else 0.0
        elif own and kind.phase in PASS_PHASES:
            slots.append(Slot(kind.phase, on.micro_batch, stage_of[kind.layers], cost.value - cost.comm, cost.comm))
        elif kind.module != module and kind.phase in PASS_PHASES:
            key = kind.module, kind.phase, on.micro_batch
            slowest[key] = max(slowest.get(key, cost), cost, key=lambda each: each.value)
            work[kind.ranks[0]] = total_cost(work.get(kind.ranks[0], NO_COST), cost)
    readers = reading_micro_batches(plan, module)
    passes = list[EncoderPass]()
    for (name, phase, number), cost in slowest.items():
        read, stages = readers.get((name, number), set()), plan.layouts[name].pp
        seconds = cost.value - cost.comm, cost.comm
        if phase == "F" and read:
            passes.append(EncoderPass(name, phase, number, *seconds, 0, slot_of_read(slots, min(read)), stages))
        elif phase == "B" and read:
            begin = slot_of_gradients(slots, max(read))
            passes.append(EncoderPass(name, phase, number, *seconds, begin, len(slots), stages))
    rising = sorted(passes, key=lambda each: (each.phase, each.end, each.begin))
    most = (
        max((c.value - c.comm for c in work.values()), default=0.0),
        max((c.comm for c in work.values()), default=0.0),
    )
    return GapProblem(module, tuple(rising), tuple(slots), once, most)


def slot_of_read(slots: Sequence[Slot], micro_batch: int) -> int:
    """The first slot that reads what encoders make for a micro-batch, or for a later one if this replica has none."""
    first = (at for at, slot in enumerate(slots) if (slot.phase, slot.stage) == ("F", 0))
    return next((at for at in first if slots[at].micro_batch >= micro_batch), len(slots))


def slot_of_gradients(slots: Sequence[Slot], micro_batch: int) -> int:
    """The slot behind the last that returns gradients of a micro-batch, or of one before if this replica has none."""
    last = (at for at, slot in enumerate(slots) if slot.phase in "BI" and slot.stage == 0)
    return 1 + max((at for at in last if slots[at].micro_batch <= micro_batch), default=-1)


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
