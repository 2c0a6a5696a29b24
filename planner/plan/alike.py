"""Which groups of a step do exactly the same, so that one of each kind tells what all of them do.

Groups are alike when no rank of theirs is in another group of the step, they are split alike, they have items of the
same sizes and offloads in the same micro-batches, and their ranks lie alike: rank by rank on the same stage, of the
same kind of device, and parted in the same way by every level of the network. Then each rank of one does at every
moment what the rank in the same place of the other does: prices look at nothing else of ranks, and where all of them
meet, in collectives, they arrive together. In a plan of several modules nothing is taken to be alike.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from planner.plan.mesh import stage_stride
from planner.plan.model import Layout, Plan, assignments
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster
from planner.specs.items import lengths_of

WHOLE = 64  # ranks up to which each is simulated and drawn by itself; of more, groups that are alike have one's events


@dataclass(frozen=True, slots=True)
class Alike:
    """Who does what another does."""

    groups: dict[str, str] = field(default_factory=dict)  # each group but the first of its kind → that one
    ranks: dict[int, int] = field(default_factory=dict)  # each rank of these groups → the one in its place in the first
    group_of: dict[int, str] = field(default_factory=dict)  # each of these ranks → its group


NONE = Alike()


def alike_groups(plan: Plan, number: int) -> Alike:
    """Of one step."""
    if len(plan.layouts) > 1:
        return NONE
    ((module, layout),) = plan.layouts.items()
    work = worked(plan, number, module)
    held = Counter(rank for name in work for rank in plan.groups[name].ranks)
    places = Places(plan.uses.cluster, layout)
    kinds: dict[Hashable, str] = {}
    found = Alike()
    for name, rows in work.items():
        group = plan.groups[name]
        if any(held[rank] > 1 for rank in group.ranks):
            continue
        first = kinds.setdefault((tuple(rows), group.split_in(layout), places.of(group.ranks)), name)
        if first != name:
            found.groups[name] = first
            found.ranks.update(zip(group.ranks, plan.groups[first].ranks, strict=True))
            found.group_of.update(dict.fromkeys(group.ranks, name))
    return found


def worked(plan: Plan, number: int, module: str) -> dict[str, list[Hashable]]:
    """Of each group in a step: its micro-batches, with sizes, offloads and share of devices there."""
    layout, found = plan.layouts[module], dict[str, list[Hashable]]()
    lengths = {item: lengths_of(size) for item, size in plan.uses.items[module].items()}
    for row, placed in enumerate(plan.steps[number].micro_batches):
        for a in assignments(plan, placed):
            of_items = tuple(lengths[item] for item in a.items)
            found.setdefault(a.group, []).append((row, of_items, a.offload_in(layout), a.share))
    return found


class Places:
    """Where ranks lie: what of them prices and schedules look at."""

    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        self.levels = [level.ranks for level in cluster.levels]
        self.ends = np.cumsum([entry.count for entry in cluster.ranks])
        self.names = np.array([entry.kind for entry in cluster.ranks])
        self.pipeline, self.after = layout.pp, stage_stride(layout)
        self.layout = np.array(layout.ranks)

    def of(self, ranks: Ranks) -> Hashable:
        """Of each rank its stage, its kind, and at each level its block, counted from the block of the first."""
        each = np.array(ranks)
        kinds = self.names[np.minimum(np.searchsorted(self.ends, each, side="right"), len(self.names) - 1)]
        stages = np.searchsorted(self.layout, each) // self.after % self.pipeline
        blocks = [(each // size - each[0] // size).tobytes() for size in self.levels]
        return stages.tobytes(), kinds.tobytes(), *blocks
