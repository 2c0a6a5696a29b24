"""The items of all encoders beside samples that are placed: which of their replicas computes which, and what the step
then takes about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.costs import Floats, Ints, Pricing
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Group, Layout
from planner.specs.base import Ranks
from planner.specs.hardware.profile import FORWARD_SHARE
from planner.specs.inputs import Inputs
from planner.strategies.assignment.encoder_orders import EncoderOrder, Orders
from planner.strategies.assignment.module_items import replica_groups
from planner.strategies.assignment.rank_loads import RankLoads
from planner.strategies.assignment.split_items import SplitItems, split_degrees
from planner.strategies.assignment.step_estimate import EncoderWork, PipelineWork, Read, step_estimate
from planner.strategies.assignment.stream_items import Choice, MicroBatchOf, Reader, ReplicaOf, StreamItems, first_reads

LONG = 1.0  # of a replica's mean seconds: an item that takes more may be worth splitting

Cells = list[list[list[int]]]  # by micro-batch, the items of each group


class Balance(NamedTuple):
    """What an assignment of encoders' items minds."""

    ranks: bool  # what ranks have to do already, and exchanges at the end
    homes: bool  # items stay on the ranks of the group that reads them
    degree: int = 1  # replicas over which long items may be split


class AssignmentRule(NamedTuple):
    """How samples and items are assigned."""

    together: bool  # samples are even over replicas with what they read, not by the LLM alone
    balance: Balance


@dataclass(frozen=True, slots=True)
class JointAssignment:
    """Items of each module on each of its replicas, by micro-batch."""

    cells: dict[str, Cells]  # by module
    groups: dict[str, list[Group]]  # module → its replicas, and behind them what long items are split over
    seconds: float  # of a step, without what no assignment changes
    rule: AssignmentRule | None = None  # by which samples were assigned, where they were by one


@dataclass(frozen=True, slots=True)
class PlacedSamples:
    """Samples on groups of ranks, by micro-batch, and what their module computes with them."""

    cells: Cells
    groups: list[Group]
    work: PipelineWork
    busy: Floats  # (ranks,) seconds of passes, (micro-batches, ranks) where ranks synchronise in each
    clocks: Mapping[Reader, range]  # group, by its ranks on the first stage → its clocks of `work`
    homes: Mapping[Reader, Ranks]  # the same → its ranks on all stages


class JointStreams:
    """The items of all encoders of a batch, with the layout of each, and when its passes run."""

    def __init__(self, pricing: Pricing, inputs: Inputs, layouts: Mapping[str, Layout], orders: Orders) -> None:
        self.pricing, self.inputs, self.layouts, self.batch = pricing, inputs, layouts, inputs.batches[0]
        self.orders = orders
        self.streams = {
            name: StreamItems(pricing, name, layouts[name], sizes) for name, sizes in self.batch.streams.items()
        }
        self.split_streams = self.streams_that_split()
        self.degrees = sorted({degree for _, degree in self.split_streams})

    def streams_that_split(self) -> dict[tuple[str, int], SplitItems]:
        """Of encoders with an item that is longer than a fair share, those whose items may be split, by degree."""
        found: dict[tuple[str, int], SplitItems] = {}
        for name, stream in self.streams.items():
            longest, every = max(stream.loads.values(), default=0.0), sum(stream.loads.values())
            if longest * len(stream.replicas) > every * LONG:
                for degree in split_degrees(self.inputs, name, self.layouts[name]):
                    sizes = self.batch.streams[name]
                    found[name, degree] = SplitItems(self.pricing, name, self.layouts[name], sizes, degree)
        return found

    def beside(self, samples: PlacedSamples, balance: Balance) -> JointAssignment:
        """Assign the items of every encoder, those behind that read them first."""
        module, count = self.inputs.module, len(samples.cells)
        cells, groups, work = {module: samples.cells}, {module: samples.groups}, list[EncoderWork]()
        busy = RankLoads(samples.busy)
        at: dict[str, MicroBatchOf] = {}
        ranks: dict[str, ReplicaOf] = {}
        at[module], ranks[module] = placed_items(self.layouts[module], samples.groups, samples.cells)
        homes = dict(samples.homes) if balance.homes else {}
        for name, stream in self.streams.items():
            layout, stream = self.layouts[name], self.split_streams.get((name, balance.degree), stream)
            reads, by = first_reads(self.batch, name, at, ranks)
            order = self.orders[name]
            serves = order.serves or count
            when = {item: number // serves * serves for item, number in reads.items()}
            start = busy.of_replicas(stream.replicas) if balance.ranks and layout.zero < 3 else None
            choice = Choice(np.zeros(len(stream.replicas)) if start is None else start, balance.ranks, homes)
            cells[name] = stream.by_micro_batch(when, by, count, choice)
            at[name], ranks[name] = placed_items(layout, stream.groups, cells[name])
            homes |= replica_homes(name, layout) if balance.homes else {}
            taken = stream.seconds(cells[name], by) / layout.pp
            busy.add(stream.places, taken)
            groups[name] = stream.groups
            work.append(encoder_work(stream, order, cells[name], taken, (reads, by), samples.clocks))
        return JointAssignment(cells, groups, step_estimate(samples.work, work))


def replica_homes(name: str, layout: Layout) -> dict[Reader, Ranks]:
    """Who reads, by the ranks of a first stage → the ranks of that replica on all stages."""
    first = {*stage_ranks(layout, 0)}
    groups = replica_groups(layout).values()
    return {(name, Ranks(rank for rank in group.ranks if rank in first)): group.ranks for group in groups}


def encoder_work(
    stream: StreamItems,
    order: EncoderOrder,
    cells: Cells,
    seconds: Floats,
    read: tuple[MicroBatchOf, Mapping[int, Reader]],
    clocks: Mapping[Reader, range],
) -> EncoderWork:
    """The work of an encoder as the estimate of a step has it; `read`: when each item is, and by whom."""
    (when, by), zero3, reads = read, stream.layout.zero == 3, [dict[Read, None]() for _ in cells]
    for number, of_places in enumerate(cells):
        for source, items in enumerate(of_places):
            for item in items:
                if by[item] in clocks:  # what other encoders read is waited for by those who read them
                    reads[when[item]][Read(clocks[by[item]], number, source)] = None
    before, behind = pass_places(cells, when, order, zero3)
    share = FORWARD_SHARE if stream.pricing.through_layers(stream.name) else 1.0
    forward, backward = stream.in_turn(seconds * share), seconds * (1.0 - share)
    return EncoderWork(stream.places, forward, backward, before, behind, [[*each] for each in reads], zero3)


def pass_places(
    cells: Sequence[Sequence[Sequence[int]]], when: MicroBatchOf, order: EncoderOrder, synchronised: bool
) -> tuple[Ints, Ints]:
    """(micro-batches, places) the micro-batch of the LLM ahead of which each forward runs, and that behind which each
    backward does; the number of micro-batches where there is none, or it is at the end.
    """
    count, never = len(cells), [len(cells)]
    before = np.array([[min(map(when.__getitem__, items), default=count) for items in places] for places in cells])
    behind = np.array([[max(map(when.__getitem__, items), default=-1) for items in places] for places in cells])
    if synchronised:
        before = np.broadcast_to(before.min(axis=1, keepdims=True), before.shape)
        behind = np.broadcast_to(behind.max(axis=1, keepdims=True), behind.shape)
    first = 0 if order.ahead is None else np.maximum(before - order.ahead, 0)
    return np.where(before < count, first, count), np.where((behind < 0) | (not order.at_once), never, behind)


def placed_items(
    layout: Layout, groups: Sequence[Group], by_number: Sequence[Sequence[Sequence[int]]]
) -> tuple[MicroBatchOf, ReplicaOf]:
    """Item → its micro-batch, and the ranks of its group on the first stage, where it reads."""
    first = {*stage_ranks(layout, 0)}
    of_replica = [Ranks(rank for rank in group.ranks if rank in first) for group in groups]
    placed = [
        (item, number, of_replica[replica])
        for number, cells in enumerate(by_number)
        for replica, items in enumerate(cells)
        for item in items
    ]
    return {item: number for item, number, _ in placed}, {item: ranks for item, _, ranks in placed}
