"""Shares of modules: the placer's, whose pieces have shares as modes, then better ones by moves, each simulated.

A piece is what a module has on the busiest rank in one micro-batch, both passes; a mode is a share of the rank, in
seconds by the price of a plan (costs/compute/contention.py), beside what the placer has put there. Its placement counts
no launches and no other rank, so shares near it are tried in simulated plans, and those of all modules where they are
few. Shares of a micro-batch add up to 1 at most.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

from planner.costs import DeviceUse, Pricing, device_slowdown
from planner.placer import Lanes, Mode, Piece, Placed, place
from planner.plan.plan_file import Plan
from planner.plan.task import PASS_PHASES, Task
from planner.strategies.sharing.shared_plan import Shares, sharing_modules

STEPS = 8  # in a device: a share is a multiple of 1/8
FEW = 64  # shares of all modules that are tried one by one
PIECES = 8  # at most: of so many modules and micro-batches the order is tried in full, or nearly
EFFORT = 20_000  # pieces placed
Counts = tuple[int, ...]  # steps of each module; 0: it has its devices alone


class PieceUse(NamedTuple):
    """What a piece asks of a device, whatever its share, and what its module waits for."""

    compute: float
    memory_bound: float
    streamed: float
    other: float  # seconds of exchanges and of waits for launches

    def at(self, share: float, pricing: Pricing) -> DeviceUse:
        return DeviceUse(share, self.compute, self.memory_bound, self.streamed, pricing.device_shares)


@dataclass(frozen=True)
class ShareSearch:
    """The search for shares of the modules of a plan that has none."""

    plan: Plan
    tasks: Sequence[Task]
    pricing: Pricing
    seconds_of: Callable[[Shares], float]  # of a simulated step; infinite where it does not fit
    steps: int = STEPS
    known: dict[Counts, float] = field(default_factory=dict)

    @cached_property
    def modules(self) -> list[str]:
        """Those that could share ranks."""
        return sharing_modules(self.plan)

    def best(self) -> tuple[Shares, float]:
        """The shares of least simulated seconds; none where modules are quickest one after another."""
        every = [*self.all_counts()] if self.steps ** len(self.modules) <= FEW * self.steps else []
        alone = (0,) * len(self.modules)
        if 0 < len(every) <= FEW:
            found = min(every, key=lambda counts: (self.seconds(counts), counts))
            return self.shares(found), self.seconds(found)
        starts = dict.fromkeys((alone, self.placed(), *self.even()))
        found = min((self.improved(start) for start in starts), key=lambda counts: (self.seconds(counts), counts))
        return self.shares(found), self.seconds(found)

    def seconds(self, counts: Counts) -> float:
        """Simulated seconds, found once."""
        if counts not in self.known:
            self.known[counts] = self.seconds_of(self.shares(counts))
        return self.known[counts]

    def shares(self, counts: Counts) -> Shares:
        """Steps as shares of modules."""
        return {name: count / self.steps for name, count in zip(self.modules, counts, strict=True) if count}

    def all_counts(self) -> Iterator[Counts]:
        """Every division among two modules or more, and none."""
        for counts in product(range(self.steps), repeat=len(self.modules)):
            if self.is_division(counts):
                yield counts

    def even(self) -> Iterator[Counts]:
        """Two modules, each with half of its devices."""
        count = len(self.modules)
        for one in range(count):
            for other in range(one + 1, count):
                yield tuple(self.steps // 2 if at in (one, other) else 0 for at in range(count))

    def improved(self, counts: Counts) -> Counts:
        """Steps given, taken or passed on, one at a time, while that is quicker."""
        while True:
            near = [each for each in self.moves(counts) if self.is_division(each)]
            better = min(near, key=lambda each: (self.seconds(each), each), default=counts)
            if self.seconds(better) >= self.seconds(counts):
                return counts
            counts = better

    def moves(self, counts: Counts) -> Iterator[Counts]:
        """A step more or less of one module, or passed from one to another; a module whole."""
        for one in range(len(counts)):
            for change in (1, -1, -counts[one]):
                yield tuple(max(0, each + change * (at == one)) for at, each in enumerate(counts))
            for other in (at for at in range(len(counts)) if at != one and counts[one]):
                yield tuple(each - (at == one) + (at == other) for at, each in enumerate(counts))

    def placed(self) -> Counts:
        """What the placer finds: of each module its mode, where another runs beside it."""
        found = place(self.pieces, [Lanes(1)], self.priced, EFFORT)
        placed, counts = found.placed if found else (), dict.fromkeys(self.modules, 0)
        for each in placed:
            beside = any(o is not each and o.start < each.end and each.start < o.end for o in placed)
            if beside and each.mode.share < 1:
                counts[each.piece.work] = counts[each.piece.work] or round(each.mode.share * self.steps)
        own = tuple(counts.values())
        return own if self.is_division(own) else (0,) * len(own)

    @cached_property
    def pieces(self) -> list[Piece]:
        """The modules of the first micro-batches on the busiest rank, with a mode for each share."""
        found = list[Piece]()
        for module, micro_batch in [*self.uses][: max(PIECES, len(self.modules))]:
            after = (f"{edge.source}/{micro_batch}" for edge in self.plan.edges if edge.target == module)
            use = self.uses[module, micro_batch]
            modes = (self.mode(use, count / self.steps) for count in range(self.steps, 0, -1))
            known = {each.name for each in found}
            feeding = {name: 0.0 for name in after if name in known}
            found.append(Piece(f"{module}/{micro_batch}", tuple(modes), feeding, work=module))
        return found

    def mode(self, use: PieceUse, share: float) -> Mode:
        return Mode(use.at(share, self.pricing).share_seconds + use.other, share=share)

    def priced(self, piece: Piece, mode: Mode, _start: float, beside: tuple[Placed, ...]) -> float:
        """Seconds of a piece beside others."""
        own, others = self.use_of(piece, mode.share), [self.use_of(each.piece, each.mode.share) for each in beside]
        return mode.seconds + own.device_seconds * (device_slowdown(own, others) - device_slowdown(own, ()))

    def use_of(self, piece: Piece, share: float) -> DeviceUse:
        module, _, micro_batch = piece.name.rpartition("/")
        return self.uses[module, int(micro_batch)].at(share, self.pricing)

    @cached_property
    def uses(self) -> dict[tuple[str, int], PieceUse]:
        """Module, micro-batch → what both passes ask of the busiest rank, in the order of the first."""
        passes = [task for task in self.tasks if task.phase in PASS_PHASES and task.items]
        costs = {task.id: self.pricing.price(task) for task in passes}
        busy: dict[int, float] = {}
        for task in passes:
            busy |= {rank: busy.get(rank, 0.0) + costs[task.id].value for rank in task.ranks}
        rank = max(busy, key=lambda each: (busy[each], -each), default=0)
        found: dict[tuple[str, int], PieceUse] = {}
        for task in (task for task in passes if rank in task.ranks and task.module in self.modules):
            use, before = self.pricing.device_use(task), found.get((task.module, task.micro_batch or 0))
            streamed = use.memory_bound if use.streamed is None else use.streamed
            own = use.compute, use.memory_bound, streamed, max(0.0, costs[task.id].value - use.device_seconds)
            found[task.module, task.micro_batch or 0] = PieceUse(
                *(one + other for one, other in zip(own, before or (0.0,) * 4, strict=True))
            )
        return found

    def is_division(self, counts: Counts) -> bool:
        """Whether no module has a share, or at least two, which add up to a device at most; of threads that launch at
        the same time, each has one.
        """
        sharing, threads = sum(count > 0 for count in counts), self.pricing.device_shares.launch_threads
        launched = threads == 1 or sharing <= threads
        return launched and sharing != 1 and sum(counts) <= self.steps and max(counts, default=0) < self.steps
