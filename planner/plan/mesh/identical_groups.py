"""Ranks and groups of a step that do the same, of which one is simulated for all.

Ranks that occur in exactly the same tasks behave identically: one of each kind represents the others exactly.

Groups are identical when none of their ranks is in another group of the step, they have the same split, items of the
same sizes and offloads in the same micro-batches, and equivalent ranks: rank by rank on the same stage, of the same
kind of device, and divided in the same way by every level of the network. Then corresponding ranks do the same at every
moment: prices depend on nothing else of ranks, and in collectives of all ranks they arrive together. Ranks that join
micro-batches and are in no group of the step are identical where they are on the same stage and of the same kind: on a
large cluster most ranks may be idle. Groups of plans of several modules are never taken to be identical.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.plan.mesh.rank_mesh import stage_stride
from planner.plan.mesh.synchronisation import all_ranks_join_micro_batches, idle_group
from planner.plan.plan_file import Layout, Plan, assignments
from planner.specs.base import Ranks
from planner.specs.hardware.cluster import Cluster
from planner.specs.workload.items import part_lengths

# Up to so many ranks each is simulated and drawn; of more, identical groups share the events of one
MAX_UNFOLDED_RANKS = 64


@dataclass(frozen=True, slots=True)
class IdenticalGroups:
    """Groups and ranks whose events are those of another group and its ranks."""

    # Group → the first group identical to it; the first ones are no keys
    groups: dict[str, str] = field(default_factory=dict)
    # Rank of these groups → the corresponding rank of the first group
    ranks: dict[int, int] = field(default_factory=dict)
    group_of: dict[int, str] = field(default_factory=dict)  # rank of these groups → its group


NO_IDENTICAL_GROUPS = IdenticalGroups()


def identical_groups(plan: Plan, number: int) -> IdenticalGroups:
    """Return which groups of a step are identical to an earlier one."""
    if len(plan.layouts) > 1:
        return NO_IDENTICAL_GROUPS
    ((module, layout),) = plan.layouts.items()
    work = work_by_group(plan, number, module)
    groups_of_rank = Counter(rank for name in work for rank in plan.groups[name].ranks)
    positions = RankPositions(plan.uses.cluster, layout)
    kinds: dict[Hashable, str] = {}
    result = IdenticalGroups()
    for name, group_work in work.items():
        group = plan.groups[name]
        if any(groups_of_rank[rank] > 1 for rank in group.ranks):
            continue
        first = kinds.setdefault((tuple(group_work), group.resolved_split(layout), positions.key_of(group.ranks)), name)
        if first != name:
            result.groups[name] = first
            result.ranks.update(zip(group.ranks, plan.groups[first].ranks, strict=True))
            result.group_of.update(dict.fromkeys(group.ranks, name))
    if all_ranks_join_micro_batches(layout, plan.uses.models[module]):
        fold_idle_ranks(result, Ranks(rank for rank in layout.ranks if rank not in groups_of_rank), positions)
    return result


def fold_idle_ranks(result: IdenticalGroups, idle: Ranks, positions: "RankPositions") -> None:
    """Add the groups of ranks without any work in the step, each of them a group of its own."""
    first: dict[tuple[int, str], int] = {}
    for rank, stage, kind in zip(idle, positions.stages(idle).tolist(), positions.kinds(idle).tolist(), strict=True):
        like = first.setdefault((stage, kind), rank)
        if like != rank:
            name = idle_group(rank)
            result.groups[name], result.ranks[rank], result.group_of[rank] = idle_group(like), like, name


def work_by_group(plan: Plan, number: int, module: str) -> dict[str, list[Hashable]]:
    """Return, by group, its work: micro-batch, documents' lengths, offloads and share of the devices."""
    layout, work = plan.layouts[module], dict[str, list[Hashable]]()
    lengths = {item: part_lengths(size) for item, size in plan.uses.items[module].items()}
    for index, micro_batch in enumerate(plan.steps[number].micro_batches):
        for a in assignments(plan, micro_batch):
            item_lengths = tuple(lengths[item] for item in a.items)
            work.setdefault(a.group, []).append((index, item_lengths, a.offload_shares(layout), a.share))
    return work


class RankPositions:
    """Stage, device and network position of ranks: all of them that prices and schedules depend on."""

    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        self.levels = [level.ranks for level in cluster.levels]
        self.ends = np.cumsum([entry.count for entry in cluster.ranks])
        self.names = np.array([entry.kind for entry in cluster.ranks])
        self.pipeline, self.after = layout.pp, stage_stride(layout)
        self.layout = np.array(layout.ranks)

    def key_of(self, ranks: Ranks) -> Hashable:
        """Return a key of the ranks' stages, kinds of device, and blocks at each level relative to the first rank's."""
        each = np.array(ranks)
        blocks = [(each // size - each[0] // size).tobytes() for size in self.levels]
        return self.stages(ranks).tobytes(), self.kinds(ranks).tobytes(), *blocks

    def kinds(self, ranks: Ranks) -> NDArray[np.str_]:
        """Return the kind of device of each rank."""
        found = np.searchsorted(self.ends, np.array(ranks, dtype=np.int64), side="right")
        return self.names[np.minimum(found, len(self.names) - 1)]

    def stages(self, ranks: Ranks) -> NDArray[np.int64]:
        """Return the pipeline stage of each rank."""
        place: NDArray[np.int64] = np.searchsorted(self.layout, np.array(ranks, dtype=np.int64))
        return place // self.after % self.pipeline


def representative_ranks(sets: Iterable[Ranks]) -> dict[int, int]:
    """Map each rank of `sets` to the lowest rank that is in exactly the same ones."""
    memberships: dict[int, list[int]] = {}
    for number, ranks in enumerate(dict.fromkeys(sets)):
        for rank in ranks:
            memberships.setdefault(rank, []).append(number)
    first: dict[tuple[int, ...], int] = {}
    return {rank: first.setdefault(tuple(memberships[rank]), rank) for rank in sorted(memberships)}


class EquivalentRanks:
    """One rank of each kind among the ranks of some tasks."""

    def __init__(self, sets: Iterable[Ranks]) -> None:
        self.representative = representative_ranks(sets)

    def among(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return one rank of each kind among any ranks; of those in none of the sets none."""
        found = self.representative
        return tuple(dict.fromkeys(found[rank] for rank in ranks if rank in found))
