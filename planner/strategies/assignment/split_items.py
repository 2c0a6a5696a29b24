"""Long items of an encoder over several of its replicas, short ones whole on one (packing/long_short.py): in the plan,
groups of one replica beside groups of several, over which an item is split: by its parts where these divide nearly
evenly, such as the frames of a video, else by heads.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from planner.costs import Floats, Pricing
from planner.packing import SplitProblem, split_long
from planner.plan.plan_file import Group, Layout
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.specs.sequence_sharding import whole_shares
from planner.specs.workload.items import Size, part_lengths
from planner.strategies.assignment.module_items import item_line
from planner.strategies.assignment.stream_items import Choice, Reader, StreamItems, size_parts

DEGREES = (2, 4, 8)  # replicas of a group


class SplitItems(StreamItems):
    """Assigns the items of one encoder to its replicas, or to groups of so many consecutive ones."""

    def __init__(self, pricing: Pricing, name: str, layout: Layout, sizes: Mapping[int, Size], degree: int) -> None:
        super().__init__(pricing, name, layout, sizes)
        self.degree = degree
        firsts = range(0, len(self.replicas), degree)
        joined = (sorted(rank for own in self.replicas[first : first + degree] for rank in own) for first in firsts)
        groups = [Group(ranks=Ranks(ranks), split={"ulysses": degree}) for ranks in joined]
        self.groups, self.places = [*self.groups, *groups], [*self.replicas, *(group.ranks for group in groups)]
        self.senders = [*self.senders, *(group.ranks for group in groups)]
        self.split_line = item_line(pricing, name, layout, groups[0])

        def split_parts(size: Size) -> Floats:
            shares = whole_shares(part_lengths(size), (degree, 1))
            if shares:
                return max((size_parts(self.line, parts) for parts in shares), key=lambda parts: float(parts[0]))
            return size_parts(self.split_line, part_lengths(size))

        of_size = {size: split_parts(size) for size in {*sizes.values()}}
        self.split_parts = {item: of_size[size] for item, size in sizes.items()}

    def parts_on(self, item: int, place: int) -> Floats:
        """What an item adds to a pass of each rank of a place: a replica, or behind all of them a group."""
        return self.parts[item] if place < len(self.replicas) else self.split_parts[item]

    def packed_seconds(self, packs: Floats) -> Floats:
        """(micro-batches, places) seconds of passes, those of groups at what splitting costs."""
        count = len(self.replicas)
        own, split = self.line.packed_seconds(packs[:, :count]), self.split_line.packed_seconds(packs[:, count:])
        return np.concatenate((own, split), axis=1)

    def placed(self, items: Sequence[int], by: Mapping[int, Reader], choice: Choice) -> dict[int, int]:
        """Item → its place, home by home; homes that are no whole groups have no item split."""
        found: dict[int, int] = {}
        homes: dict[tuple[int, ...], list[int]] = {}
        for item in items:
            homes.setdefault(tuple(self.allowed(by[item], choice).tolist()), []).append(item)
        for allowed, own in homes.items():
            groups = sorted({replica // self.degree for replica in allowed})
            if len(groups) * self.degree == len(allowed):
                found |= self.split_within(groups, own, by, choice)
            else:
                found |= super().placed(own, by, choice)
        return found

    def split_within(
        self, groups: Sequence[int], items: Sequence[int], by: Mapping[int, Reader], choice: Choice
    ) -> dict[int, int]:
        """Item → its place in these groups."""
        replicas = [group * self.degree + at for group in groups for at in range(self.degree)]
        sending = np.array([self.farthest_seconds(item, by[item]) for item in items])
        whole = np.array([self.loads[item] for item in items]) + sending
        split = np.array([float(self.split_parts[item][0]) for item in items]) + sending
        found = split_long(SplitProblem(whole, split, self.degree, choice.start[replicas]))
        return {
            item: len(self.replicas) + groups[place] if is_split else replicas[place]
            for item, is_split, place in zip(items, found.is_split.tolist(), found.place.tolist(), strict=True)
        }

    def in_turn(self, forward: Floats) -> Floats:
        """The forwards of a replica end behind those of its group, and the group's behind those of its replicas."""
        count = len(self.replicas)
        of_groups = forward[:, count:]
        longest = forward[:, :count].reshape(len(forward), -1, self.degree).max(axis=2)
        after = np.where(of_groups > 0.0, of_groups + longest, 0.0)
        return np.concatenate((forward[:, :count] + np.repeat(of_groups, self.degree, axis=1), after), axis=1)

    def exchanged(
        self, items: Sequence[int], by: Mapping[int, Reader], placed: Mapping[int, int], choice: Choice
    ) -> dict[int, int]:
        """Where they are placed, after exchanges already."""
        return {item: placed[item] for item in items}


def split_degrees(inputs: Inputs, name: str, layout: Layout) -> Iterable[int]:
    """Over how many replicas an item of an encoder may be split: as heads allow, where replicas synchronise once a
    step, the job says nothing of cp, and its software takes groups that differ.
    """
    spec, fixed = inputs.model.modules[name], inputs.job.fix.layouts.get(name, inputs.job.layout)
    cp_fixed = fixed.cp or inputs.job.layout.cp
    if cp_fixed or spec.unshardable_reason or layout.cp * layout.pp > 1 or layout.zero == 3:
        return ()
    if inputs.software.knobs.groups != "any" or layout.features != "computed":
        return ()
    heads, replicas = spec.heads // layout.tp, layout.dp * layout.replica
    return [degree for degree in DEGREES if heads % degree == 0 and replicas % degree == 0]
