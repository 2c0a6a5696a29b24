"""Which sample goes where, and with it which item of which encoder: modules balanced together.

Samples are assigned longest first, by the LLM's seconds alone, and by those of encoders beside the LLM too; items then
go to replicas whose ranks have least to do, or to these on ranks of the replica that reads them; and with the best of
these, items that are longer than a fair share are split. The assignment is taken by which an estimate of the step
(step_estimate.py) is least; that which minds nothing but the LLM is among them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.costs import Floats, Ints, Pricing
from planner.layouts import layout_problem
from planner.packing import exchange_loads, longest_first
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Group, Layout
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.specs.workload.samples import ReadersByItem, SampleBatch
from planner.strategies.static.rank_loads import FORWARD_SHARE, RankLoads, pipeline_loads, stage_shares
from planner.strategies.static.split_items import SplitItems, split_degrees
from planner.strategies.static.static_plan import (
    ReplicaItems,
    assign_items,
    item_line,
    micro_batch_count,
    replica_groups,
)
from planner.strategies.static.step_estimate import EncoderWork, PipelineWork, Read, step_estimate
from planner.strategies.static.stream_items import Choice, MicroBatchOf, Reader, ReplicaOf, StreamItems, first_reads

EXCHANGES = 200  # of samples between replicas
LONG = 1.0  # of a replica's mean seconds: an item that takes more may be worth splitting
LESS = 1.0 - 1e-9  # of the best so far: what another assignment must stay below to be taken


@dataclass(frozen=True, slots=True)
class JointAssignment:
    """Items of each module on each of its replicas, by micro-batch."""

    cells: dict[str, list[list[list[int]]]]  # module → by micro-batch, the items of each group
    groups: dict[str, list[Group]]  # module → its replicas, and behind them what long items are split over
    seconds: float  # of a step, without what no assignment changes


class Balance(NamedTuple):
    """What an assignment of encoders' items minds."""

    ranks: bool  # what ranks have to do already, and exchanges at the end
    homes: bool  # items stay on the ranks of the replica that reads them
    degree: int = 1  # replicas over which long items may be split


class JointItems:
    """The samples of a batch and the items that they read, with the layout of every module."""

    def __init__(self, pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> None:
        self.pricing, self.inputs, self.layouts, self.batch = pricing, inputs, layouts, inputs.batches[0]
        self.layout = layouts[inputs.module]
        self.replicas = [group.ranks for group in replica_groups(self.layout).values()]
        self.streams = {
            name: StreamItems(pricing, name, layouts[name], sizes) for name, sizes in self.batch.streams.items()
        }
        self.split_streams = self.streams_that_split()
        self.degrees = sorted({degree for _, degree in self.split_streams})
        line, sizes = item_line(pricing, inputs.module, self.layout), self.batch.items
        of_size = {size: line.item_seconds(size) for size in {*sizes.values()}}
        self.loads = {item: of_size[size] for item, size in sizes.items()}
        mean = sum(sizes.values()) // len(sizes)
        first = {*stage_ranks(self.layout, 0)}
        ranks = Ranks(rank for rank in self.replicas[0] if rank in first)
        self.shares = stage_shares(pricing, inputs.module, self.layout, ranks, mean)

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

    def best(self) -> JointAssignment:
        """The assignment with the least estimate, of equal ones the first: that by the LLM alone."""
        found = self.candidates()
        best = next(found)
        for each in found:
            best = each if each.seconds < best.seconds * LESS else best
        return best

    def candidates(self) -> Iterator[JointAssignment]:
        """By the LLM alone; samples with what their items take of its ranks, items on any rank, or at home; and the
        best of these with long items split.
        """
        alone = assign_items(self.pricing, self.inputs, self.layout, layout_problem(self.inputs).trained)
        brought = self.brought_seconds() if len(self.replicas) > 1 else {}
        together = [self.balanced(brought)] if any(brought.values()) else []
        choices = [(alone, Balance(ranks=False, homes=False))]
        choices += [
            (samples, Balance(ranks=True, homes=homes))
            for samples in (alone, *together)
            for homes in ((False, True) if together else (False,))
        ]
        seconds: list[float] = []
        for choice in choices:
            found = self.with_streams(*choice)
            seconds.append(found.seconds)
            yield found
        samples, balance = choices[seconds.index(min(seconds))]
        for degree in self.degrees:
            yield self.with_streams(samples, balance._replace(ranks=True, degree=degree))

    def brought_seconds(self) -> dict[int, float]:
        """Sample → seconds that its items take of each rank of a replica, of encoders on ranks of every replica."""
        found = dict.fromkeys(self.loads, 0.0)
        readers: dict[str, ReadersByItem] = {self.inputs.module: {sample: (sample,) for sample in self.loads}}
        for name, stream in self.streams.items():
            readers[name] = sample_readers(self.batch, name, readers)
            within = sum({*replica} <= {*group} for replica in stream.replicas for group in self.replicas)
            if within != len(stream.replicas) or within % len(self.replicas):
                continue
            for item, samples in readers[name].items():
                found[samples[0]] += stream.loads[item] / (within // len(self.replicas)) / self.layouts[name].pp
        return found

    def balanced(self, brought: dict[int, float]) -> ReplicaItems:
        """Samples whose seconds on all modules together are even over replicas; longest first in each."""
        order = sorted(self.loads, key=lambda item: (-self.batch.items[item], item))
        together = np.array([self.loads[item] * self.shares.max() + brought[item] for item in order])
        count = micro_batch_count(self.layout, len(self.inputs.batches[0].items))
        nothing = np.zeros(len(self.replicas))
        bins = longest_first(together, nothing, count * self.layout.micro_batch)
        seconds = np.repeat(together[:, None], len(nothing), axis=1)
        bins = exchange_loads(seconds, bins, nothing, EXCHANGES, may_move=False)
        items = np.array(order)
        return [self.in_micro_batches(items[bins == replica].tolist(), count) for replica in range(len(nothing))]

    def in_micro_batches(self, items: Sequence[int], count: int) -> list[tuple[int, ...]]:
        """Samples of a replica by micro-batch: each to the one that has least, with room for another."""
        loads, room = np.array([self.loads[item] for item in items]), self.layout.micro_batch
        bins = longest_first(loads, np.zeros(count), room)
        return [tuple(items[at] for at in np.flatnonzero(bins == number).tolist()) for number in range(count)]

    def with_streams(self, samples: ReplicaItems, balance: Balance) -> JointAssignment:
        """Assign every other module's items, those behind that read them first."""
        module, count = self.inputs.module, len(samples[0])
        cells = {module: [[[*of_replica[number]] for of_replica in samples] for number in range(count)]}
        seconds = np.array([[sum(self.loads[item] for item in items) for items in each] for each in samples])
        of_ranks = pipeline_loads(self.replicas, self.layout, self.shares, seconds, self.inputs.cluster.size)
        busy = RankLoads(of_ranks.busy - of_ranks.warm_up)  # of the drain nothing: last micro-batches are the shortest
        groups = {module: [*replica_groups(self.layout).values()]}
        at: dict[str, MicroBatchOf] = {}
        ranks: dict[str, ReplicaOf] = {}
        at[module], ranks[module] = placed_items(self.layout, groups[module], cells[module])
        homes = dict(self.homes(module, self.layout)) if balance.homes else {}
        work: list[EncoderWork] = []
        for name, stream in self.streams.items():
            layout, stream = self.layouts[name], self.split_streams.get((name, balance.degree), stream)
            reads, by = first_reads(self.batch, name, at, ranks)
            when = {item: number // layout.serves * layout.serves for item, number in reads.items()}
            start = busy.of_replicas(stream.replicas) if balance.ranks and layout.zero < 3 else None
            choice = Choice(np.zeros(len(stream.replicas)) if start is None else start, balance.ranks, homes)
            cells[name] = stream.by_micro_batch(when, by, count, choice)
            at[name], ranks[name] = placed_items(layout, stream.groups, cells[name])
            homes |= self.homes(name, layout) if balance.homes else {}
            taken = stream.seconds(cells[name], by) / layout.pp
            busy.add(stream.places, taken.sum(axis=0))
            groups[name] = stream.groups
            work.append(self.encoder_work(stream, cells[name], taken, reads, by))
        passes, synchronised = seconds * self.shares.max(), self.layout.zero == 3
        llm = PipelineWork(self.replicas, passes, of_ranks.warm_up, of_ranks.drain, synchronised)
        return JointAssignment(cells, groups, step_estimate(llm, work))

    def homes(self, name: str, layout: Layout) -> Iterator[tuple[Reader, Ranks]]:
        """Who reads, by the ranks of a first stage → the ranks of that replica on all stages."""
        first = {*stage_ranks(layout, 0)}
        for group in replica_groups(layout).values():
            yield (name, Ranks(rank for rank in group.ranks if rank in first)), group.ranks

    def encoder_work(
        self,
        stream: StreamItems,
        cells: Sequence[Sequence[Sequence[int]]],
        seconds: Floats,
        when: MicroBatchOf,
        by: Mapping[int, Reader],
    ) -> EncoderWork:
        """The work of an encoder as the estimate of a step has it."""
        replica_of = {reader: number for number, (reader, _) in enumerate(self.homes(self.inputs.module, self.layout))}
        reads: list[list[Read]] = [[] for _ in cells]
        for number, of_places in enumerate(cells):
            for source, items in enumerate(of_places):
                for item in items:
                    if by[item] in replica_of:  # what other encoders read is waited for by those who read them
                        reads[when[item]].append(Read(replica_of[by[item]], number, source))
        layout = self.layouts[stream.name]
        before, behind = pass_places(cells, when, layout)
        forward = stream.in_turn(seconds * FORWARD_SHARE)
        backward = seconds * (1.0 - FORWARD_SHARE)
        return EncoderWork(stream.places, forward, backward, before, behind, reads, layout.zero == 3)


def pass_places(cells: Sequence[Sequence[Sequence[int]]], when: MicroBatchOf, layout: Layout) -> tuple[Ints, Ints]:
    """(micro-batches, places) the micro-batch of the LLM ahead of which each forward runs, and that behind which each
    backward does; the number of micro-batches where there is none, or it is at the end.
    """
    count, never = len(cells), [len(cells)]
    before = np.array([[min(map(when.__getitem__, items), default=count) for items in places] for places in cells])
    behind = np.array([[max(map(when.__getitem__, items), default=-1) for items in places] for places in cells])
    if layout.zero == 3:
        before = np.broadcast_to(before.min(axis=1, keepdims=True), before.shape)
        behind = np.broadcast_to(behind.max(axis=1, keepdims=True), behind.shape)
    ahead = np.where(before < count, np.maximum(before - layout.ahead, 0), count)
    return ahead, np.where((behind < 0) | (layout.backward == "last"), never, behind)


def sample_readers(batch: SampleBatch, name: str, readers: Mapping[str, ReadersByItem]) -> ReadersByItem:
    """Item of a module → samples that read it, themselves or over modules whose `readers` are known."""
    found: dict[int, list[int]] = {item: [] for item in batch.streams[name]}
    for target, feeds in batch.feeds[name].items():
        for item, of_item in feeds.items():
            found[item] += [sample for reader in of_item for sample in readers[target][reader]]
    return {item: tuple(sorted({*samples})) for item, samples in found.items()}


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
