"""Ranks and groups of a step that do the same, of which one is simulated for all.

Ranks that occur in exactly the same tasks behave identically: one of each kind represents the others exactly.

Groups that share ranks, or of which one reads what another puts out, are a component. Components are identical when
their ranks, in rising order, are equivalent: rank by rank on the same stage of every module, of the same kind of
device, and divided in the same way by every level of the network; and when their groups are of the same ranks among
these and of the same split, have items of the same sizes and offloads in the same micro-batches, and read the same of
each other. Then corresponding ranks do the same at every moment: prices depend on nothing else of ranks, and in
collectives of all ranks they arrive together. Ranks that join micro-batches and are in no group of the step are
identical where they are on the same stages and of the same kind: on a large cluster most ranks may be idle.

Nothing is taken to be identical in a step of several losses, nor in one that places tasks of encoders but for those
that all alike have (`TaskPlacement.holds_for_all`): others may be around tasks of other components.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from planner.plan.mesh.rank_mesh import stage_stride
from planner.plan.mesh.synchronisation import all_ranks_join_micro_batches, idle_group
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.plan.tokens.encoder_outputs import ItemKey, reading_stages, transfer_group
from planner.specs.base import Ranks
from planner.specs.hardware.cluster import has_own_levels
from planner.specs.workload.items import part_lengths

# Up to so many ranks each is simulated and drawn; of more, identical groups share the events of one
MAX_UNFOLDED_RANKS = 64


class Component(NamedTuple):
    """Groups that share ranks with each other or feed each other, in an order that identical components share; with
    those of their transfers to other modules, and of their ranks where these join micro-batches without items.
    """

    ranks: Ranks
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdenticalGroups:
    """Groups and ranks whose events are those of other groups and their ranks."""

    # Group → the corresponding one of the first component identical to its own; those of the first ones are no keys
    groups: dict[str, str] = field(default_factory=dict)
    # Rank of these groups → the corresponding rank of the first component
    ranks: dict[int, int] = field(default_factory=dict)
    groups_of: dict[int, tuple[str, ...]] = field(default_factory=dict)  # rank of these groups → those of its component

    def add(self, component: Component, first: Component) -> None:
        """Add a component that is identical to the first of its kind."""
        self.groups.update(zip(component.groups, first.groups, strict=True))
        self.ranks.update(zip(component.ranks, first.ranks, strict=True))
        self.groups_of.update(dict.fromkeys(component.ranks, component.groups))


NO_IDENTICAL_GROUPS = IdenticalGroups()


def identical_groups(plan: Plan, number: int) -> IdenticalGroups:
    """Return which groups of a step are identical to earlier ones."""
    if plan.uses.tasks or not all(place.holds_for_all for place in plan.steps[number].placements):
        return NO_IDENTICAL_GROUPS
    result, positions, work = IdenticalGroups(), RankPositions(plan), StepWork(plan, number)
    first: dict[Hashable, Component] = {}
    for component, key in (*work.components(), *work.idle_components()):
        ranks = component.ranks
        where = positions.key_of(ranks) if key else positions.stages_and_kinds(ranks)
        like = first.setdefault((key, where), component)
        if like is not component:
            result.add(component, like)
    return result


# Micro-batch, what a group works on in it, and of that the items; in the order of the step
Assigned = list[tuple[int, Assignment, tuple[int, ...]]]


class StepWork:
    """The work of a step, by component."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, each = plan, enumerate(plan.steps[number].micro_batches)
        self.assigned = [(at, a, a.items) for at, micro_batch in each for a in assignments(plan, micro_batch)]
        self.feeds = [(edge, plan.feeds_of(edge)) for edge in plan.edges]
        models, layouts = plan.uses.models, plan.layouts.items()
        # The layouts whose ranks all join micro-batches
        self.joining = [each for name, each in layouts if all_ranks_join_micro_batches(each, models[name])]
        self.owner: dict[int, str] = {}  # of each rank that has work its first group

    def components(self) -> Iterator[tuple[Component, Hashable]]:
        """Yield the components, each with a key of its work."""
        together = self.joined_groups()
        found: dict[int, Assigned] = {}
        for one in self.assigned:
            found.setdefault(id(together[one[1].group]), []).append(one)
        for assigned in found.values():
            names = dict.fromkeys(a.group for _, a, _ in assigned)
            ranks = Ranks(sorted({rank for name in names for rank in self.plan.groups[name].ranks}))
            idle = map(idle_group, ranks) if self.joining else ()
            yield Component(ranks, (*names, *self.transfers(assigned), *idle)), self.key_of(ranks, assigned)

    def idle_components(self) -> Iterator[tuple[Component, Hashable]]:
        """Yield the ranks that join micro-batches without any items in the step, each by itself."""
        for rank in sorted({rank for layout in self.joining for rank in layout.ranks} - self.owner.keys()):
            yield Component(Ranks((rank,)), (idle_group(rank),)), None

    def joined_groups(self) -> dict[str, list[str]]:
        """Return all groups of a component, one list for all of them."""
        together = {a.group: [a.group] for _, a, _ in self.assigned}

        def join(one: str, other: str) -> None:
            few, many = sorted((together[one], together[other]), key=len)
            if few is not many:
                many += few
                together.update(dict.fromkeys(few, many))

        for name in [*together]:
            for other in {self.owner.setdefault(rank, name) for rank in self.plan.groups[name].ranks}:
                join(name, other)
        group_of: dict[ItemKey, str] = {(a.module, item): a.group for _, a, items in self.assigned for item in items}
        for edge, feeds in self.feeds:
            for item, readers in feeds.items():
                for reader in readers if (edge.source, item) in group_of else ():
                    if (edge.target, reader) in group_of:
                        join(group_of[edge.source, item], group_of[edge.target, reader])
        return together

    def transfers(self, assigned: Assigned) -> Iterator[str]:
        """Yield what transfers of a component to other modules are called."""
        models, layouts = self.plan.uses.models, self.plan.layouts
        for module, group in dict.fromkeys((a.module, a.group) for _, a, _ in assigned):
            for edge in (edge for edge, _ in self.feeds if edge.source == module):
                for stage in reading_stages(models[edge.target], layouts[edge.target], edge.by):
                    yield transfer_group(group, edge.target, stage)

    def key_of(self, ranks: Ranks, assigned: Assigned) -> Hashable:
        """Return a key of a component's work, in which its ranks have numbers in their order, its groups and items in
        that of the step.
        """
        layouts, sizes = self.plan.layouts, self.plan.uses.items
        place = {rank: number for number, rank in enumerate(ranks)}
        numbers: dict[str, int] = {}
        items: dict[ItemKey, int] = {}
        groups: list[Hashable] = []
        for module, name in dict.fromkeys((a.module, a.group) for _, a, _ in assigned):
            group, number = self.plan.groups[name], numbers.setdefault(name, len(numbers))
            places = tuple(place[rank] for rank in group.ranks)
            groups.append((module, number, group.resolved_split(layouts[module]), places))
        work: list[Hashable] = []
        for at, a, own in assigned:
            for item in own if self.feeds else ():
                items[a.module, item] = len(items)
            lengths = tuple(part_lengths(sizes[a.module][item]) for item in own)
            work.append(
                (at, a.module, a.layers, numbers[a.group], lengths, a.offload_shares(layouts[a.module]), a.share)
            )
        read = [
            (edge.name, number, *(items.get((edge.target, reader)) for reader in feeds[item]))
            for edge, feeds in self.feeds
            for (module, item), number in items.items()
            if module == edge.source and item in feeds
        ]
        return tuple(groups), tuple(work), tuple(read)


class RankPositions:
    """Stages, device and network position of ranks: all of them that prices and schedules depend on."""

    def __init__(self, plan: Plan) -> None:
        cluster, every = plan.uses.cluster, np.arange(plan.size)
        names = np.unique([entry.kind for entry in cluster.ranks], return_inverse=True)[1]
        entries = np.searchsorted(np.cumsum([entry.count for entry in cluster.ranks]), every, side="right")
        self.blocks = [every // level.ranks for level in cluster.levels]  # of each level, by rank
        if has_own_levels(cluster):
            begins = np.cumsum([0, *(entry.count for entry in cluster.ranks)])
            sizes_of = [[level.ranks for level in entry.levels] for entry in cluster.ranks]
            own = np.array([*zip_longest(*sizes_of, fillvalue=plan.size)])  # (levels, entries)
            self.blocks += [entries, *((every - begins[entries]) // sizes[entries] for sizes in own)]
        self.facts = np.full((len(plan.layouts) + 1, plan.size), -1)  # of each rank: stages, −1: none; kind of device
        self.facts[-1] = names[np.minimum(entries, len(names) - 1)]
        for own, layout in zip(self.facts, plan.layouts.values(), strict=False):
            own[[*layout.ranks]] = np.arange(len(layout.ranks)) // stage_stride(layout) % layout.pp

    def key_of(self, ranks: Ranks) -> Hashable:
        """Return a key of the ranks' stages, kinds of device, and blocks at each level relative to the first rank's."""
        each = np.array(ranks)
        blocks = [(of_rank[each] - of_rank[each[0]]).tobytes() for of_rank in self.blocks]
        return self.stages_and_kinds(ranks), *blocks

    def stages_and_kinds(self, ranks: Ranks) -> Hashable:
        """Return a key of the ranks' stages and kinds of device alone."""
        return self.facts[:, np.array(ranks)].tobytes()


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
