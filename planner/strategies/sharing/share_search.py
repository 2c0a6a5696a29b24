"""Shares of modules: all where they are few, else better ones by moves from halves, each simulated. Shares of a
micro-batch add up to 1 at most.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from planner.plan.plan_file import Plan
from planner.strategies.sharing.shared_plan import Shares, sharing_modules

STEPS = 8  # in a device: a share is a multiple of 1/8
FEW = 64  # shares of all modules that are tried one by one
Counts = tuple[int, ...]  # steps of each module; 0: it has its devices alone


@dataclass(frozen=True)
class ShareSearch:
    """The search for shares of the modules of a plan that has none."""

    plan: Plan
    launch_threads: int  # of a device
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
        starts = (alone, *self.even())
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

    def is_division(self, counts: Counts) -> bool:
        """Whether no module has a share, or at least two, which add up to a device at most; of threads that launch at
        the same time, each has one.
        """
        sharing = sum(count > 0 for count in counts)
        launched = self.launch_threads == 1 or sharing <= self.launch_threads
        return launched and sharing != 1 and sum(counts) <= self.steps and max(counts, default=0) < self.steps
