"""How long a tower of several tasks takes on how many replicas, by the prices of a plan.

On n replicas a tower's samples are split evenly, and each takes a forward and a backward over its part. What a pass
repeats, launches and weights that are read, makes few samples on many ranks dear: how far a tower scales (Spindle's
scaling curves, arXiv 2409.03365, section 4.1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.costs.cost_lines import CostLine
from planner.specs.workload.items import Size, part_lengths


@dataclass(frozen=True)
class TowerSeconds:
    """One tower: its samples, and what passes over some of them take on one replica."""

    name: str
    samples: Mapping[int, Size]
    line: CostLine  # of both passes of one replica

    @cached_property
    def longest_first(self) -> list[int]:
        """The samples by their seconds."""
        return sorted(self.samples, key=lambda sample: (-self.of_samples([sample]), sample))

    @cached_property
    def by_count(self) -> list[float]:
        """Seconds of so many samples on one replica, with as many long ones and short ones as there are; of 0: none."""
        order, whole = self.longest_first, len(self.samples)
        spread = ([order[at * whole // count] for at in range(count)] for count in range(1, whole + 1))
        return [0.0, *map(self.of_samples, spread)]

    def of_samples(self, samples: Sequence[int]) -> float:
        """Seconds of these samples on one replica."""
        return self.line.seconds([length for sample in samples for length in part_lengths(self.samples[sample])])

    def seconds(self, replicas: int, samples: int) -> float:
        """Seconds of so many samples on so many replicas."""
        return self.by_count[-(-samples // replicas)]

    def widths(self, most: int) -> tuple[int, ...]:
        """Numbers of replicas, up to so many, of which one fewer would leave one of them a sample more."""
        count = len(self.samples)
        return tuple(sorted({-(-count // each) for each in range(1, count + 1)} & {*range(1, most + 1)}))

    def least_work(self, within: float) -> float:
        """Seconds of all replicas together at least, however samples are split over passes none of which takes longer;
        infinite where one sample does. Of unequal samples, what each adds, and one constant.
        """
        lengths = [part_lengths(size) for size in self.samples.values()]
        if len({*lengths}) > 1:
            longest = self.of_samples(self.longest_first[:1])
            adding = sum(self.line.item_seconds(length) for parts in lengths for length in parts)
            return adding + self.line.const if longest <= within else float("inf")
        able = (seconds / count for count, seconds in enumerate(self.by_count) if count and seconds <= within)
        return len(lengths) * min(able, default=float("inf"))
