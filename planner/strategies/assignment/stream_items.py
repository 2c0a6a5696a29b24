"""Which replica of an encoder computes which items: each in the first micro-batch that reads it, by the replica whose
ranks read it, unless so many fall to that one that another ends earlier, its outputs and their gradients sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.costs import CostLine, Floats, Ints, Pricing, SendRoute
from planner.packing import exchange_loads
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.plan.task import NO_RANKS, Task
from planner.plan.tokens.encoder_outputs import transfer_group
from planner.specs.base import Layers, Ranks
from planner.specs.workload.items import Size, item_tokens, part_lengths
from planner.specs.workload.samples import SampleBatch
from planner.strategies.assignment.module_items import item_line, replica_groups

MicroBatchOf = dict[int, int]  # item → micro-batch
ReplicaOf = dict[int, Ranks]  # item → ranks of the first stage of the group that works on it
Reader = tuple[str, Ranks]  # the module that reads an item, and on which ranks
EXCHANGES = 400  # of items between replicas
GAIN = 1e-4  # of the replica with most, of each exchange: all that bring less made steps 0.03 % quicker


def first_reads(
    batch: SampleBatch, name: str, at: Mapping[str, MicroBatchOf], ranks: Mapping[str, ReplicaOf]
) -> tuple[MicroBatchOf, dict[int, Reader]]:
    """Item of a module → the first micro-batch in which it is read; and the module and ranks that read it there."""
    when: MicroBatchOf = {}
    by: dict[int, Reader] = {}
    for target, feeds in batch.feeds[name].items():
        for item, readers in feeds.items():
            for reader in readers:
                if item not in when or at[target][reader] < when[item]:
                    when[item], by[item] = at[target][reader], (target, ranks[target][reader])
    return when, by


@dataclass(frozen=True, slots=True)
class Choice:
    """Between which replicas an item may go, and how they are compared."""

    start: Floats  # (replicas,) seconds that they have to begin with; (micro-batches, replicas): in each of them
    exchanged: bool = True  # once all are placed, items are exchanged until the one with most cannot have less
    homes: Mapping[Reader, Ranks] = field(default_factory=dict)  # reader → ranks on which its items stay

    def at(self, number: int) -> "Choice":
        """The choice in one micro-batch."""
        return self if self.start.ndim == 1 else replace(self, start=self.start[number])


class StreamItems:
    """Assigns the items of one encoder to its replicas."""

    def __init__(self, pricing: Pricing, name: str, layout: Layout, sizes: Mapping[int, Size]) -> None:
        self.pricing, self.name, self.layout, self.sizes = pricing, name, layout, sizes
        self.groups = [*replica_groups(layout).values()]
        self.replicas = [group.ranks for group in self.groups]
        self.places = self.replicas  # where an item may be: on a replica
        last = {*stage_ranks(layout, layout.pp - 1)}
        self.senders = [Ranks(rank for rank in ranks if rank in last) for ranks in self.replicas]
        self.line = item_line(pricing, name, layout)
        of_size = {size: size_parts(self.line, part_lengths(size)) for size in {*sizes.values()}}
        self.parts = {item: of_size[size] for item, size in sizes.items()}
        self.loads = {item: float(parts[0]) for item, parts in self.parts.items()}
        tokens_of = {size: item_tokens(size) for size in of_size}
        self.tokens = {item: tokens_of[size] for item, size in sizes.items()}
        self.known_near: dict[Ranks, list[int]] = {}  # ranks that read → places that need not send to others
        self.known_beside: dict[Ranks, Ints] = {}  # the same of replicas alone
        self.known_within: dict[Ranks, Ints] = {}  # ranks → replicas within them
        self.known_routes: dict[tuple[int, Reader], SendRoute] = {}  # of a place to who reads
        self.known_sends: dict[tuple[int, str, SendRoute], float] = {}  # by tokens, who reads, and the way there

    def by_micro_batch(
        self, when: MicroBatchOf, by: Mapping[int, Reader], count: int, choice: Choice
    ) -> list[list[list[int]]]:
        """By micro-batch, the items on each replica, the longest placed first. Replicas are compared by all that they
        have so far, or within the micro-batch where ZeRO-3 synchronises them, or who reads them, in each.
        """
        items_of: list[list[int]] = [[] for _ in range(count)]
        for item in sorted(self.sizes, key=lambda item: (-self.loads[item], item)):
            items_of[when[item]].append(item)
        by_itself = self.layout.zero == 3 or choice.start.ndim > 1
        together = items_of if by_itself else [[item for items in items_of for item in items]]
        place_of: dict[int, int] = {}
        for number, items in enumerate(together):
            own = choice.at(number)
            placed = self.placed(items, by, own)
            place_of |= self.exchanged(items, by, placed, own) if own.exchanged else placed
        cells = [[list[int]() for _ in self.places] for _ in items_of]
        for number, items in enumerate(items_of):
            for item in items:
                cells[number][place_of[item]].append(item)
        return cells

    def placed(self, items: Sequence[int], by: Mapping[int, Reader], choice: Choice) -> dict[int, int]:
        """Item → its replica, each in turn."""
        load, found = choice.start.copy(), dict[int, int]()
        for item in items:
            found[item] = replica = self.replica_of(item, by[item], load, self.allowed(by[item], choice))
            load[replica] += self.loads[item]
        return found

    def exchanged(
        self, items: Sequence[int], by: Mapping[int, Reader], placed: Mapping[int, int], choice: Choice
    ) -> dict[int, int]:
        """Item → its replica, after exchanges that leave the replica with most less."""
        loads = np.array([self.loads[item] for item in items])
        sent = loads + np.array([self.farthest_seconds(item, by[item]) for item in items])
        seconds = np.full((len(items), len(self.replicas)), np.inf)
        for reader in dict.fromkeys(by[item] for item in items):
            own = np.flatnonzero([by[item] == reader for item in items])
            seconds[np.ix_(own, self.allowed(reader, choice))] = sent[own, None]
            seconds[np.ix_(own, self.beside(reader[1]))] = loads[own, None]
        bins = np.array([placed[item] for item in items], dtype=np.int64)
        exchanged = exchange_loads(seconds, bins, choice.start, EXCHANGES, gain=GAIN)
        return dict(zip(items, exchanged.tolist(), strict=True))

    def allowed(self, reader: Reader, choice: Choice) -> Ints:
        """The replicas that may compute what this reader reads: those within its home, or all where there is none."""
        home = choice.homes.get(reader, NO_RANKS)
        if home not in self.known_within:
            within = [number for number, own in enumerate(self.replicas) if {*own} <= {*home}]
            self.known_within[home] = np.array(within or range(len(self.replicas)))
        return self.known_within[home]

    def seconds(self, cells: Sequence[Sequence[Sequence[int]]], by: Mapping[int, Reader]) -> Floats:
        """(micro-batches, places) seconds of the items there, those of sending their outputs included."""
        sending = np.zeros((len(cells), len(self.places)))
        packs = np.zeros((*sending.shape, 1 + len(self.line.launches)))
        for number, of_replicas in enumerate(cells):
            for place, items in enumerate(of_replicas):
                for item in items:
                    if place not in self.near(by[item][1]):
                        sending[number, place] += self.sending_seconds(item, by[item], place)
                    packs[number, place] += self.parts_on(item, place)
        return self.packed_seconds(packs) + sending

    def in_turn(self, forward: Floats) -> Floats:
        """(micro-batches, places) when forwards of each place end, whose ranks run them one after another."""
        return forward

    def parts_on(self, item: int, place: int) -> Floats:
        """What an item adds to what a place computes in a pass, (parts,)."""
        return self.parts[item]

    def packed_seconds(self, packs: Floats) -> Floats:
        """(micro-batches, places) seconds of passes over items with these sums of parts, (…, places, parts)."""
        return self.line.packed_seconds(packs)

    def replica_of(self, item: int, reader: Reader, load: Floats, allowed: Ints) -> int:
        """The replica that has an item's outputs at its readers first: one beside them, or the least loaded."""
        least, beside = int(allowed[load[allowed].argmin()]), self.beside(reader[1])
        near = int(beside[load[beside].argmin()]) if len(beside) else least
        if near == least or load[near] <= load[least] + self.sending_seconds(item, reader, least):
            return near
        return least

    def beside(self, ranks: Ranks) -> Ints:
        """The replicas that send these readers nothing from beyond them."""
        if ranks not in self.known_beside:
            near = [each for each in self.near(ranks) if each < len(self.replicas)]
            self.known_beside[ranks] = np.array(near, dtype=np.int64)
        return self.known_beside[ranks]

    def near(self, ranks: Ranks) -> list[int]:
        """The places that send these readers nothing from beyond them: they lie within their ranks, or around."""
        if ranks not in self.known_near:
            of = {*ranks}
            self.known_near[ranks] = [number for number, own in enumerate(self.places) if of >= {*own} or of <= {*own}]
        return self.known_near[ranks]

    def farthest_seconds(self, item: int, reader: Reader) -> float:
        """Seconds of sending an item's outputs from a replica far from those who read it."""
        return max(self.sending_seconds(item, reader, replica) for replica in {0, len(self.replicas) - 1})

    def sending_seconds(self, item: int, reader: Reader, replica: int) -> float:
        """Seconds of sending an item's outputs from a replica to those who read it, and gradients back if any."""
        if (replica, reader) not in self.known_routes:
            self.known_routes[replica, reader] = self.pricing.route(self.send_of(1, reader, replica))
        key = self.tokens[item], reader[0], self.known_routes[replica, reader]
        if key not in self.known_sends:
            returned = self.name not in self.pricing.flows or self.pricing.flows[self.name].has_backward()
            price = self.pricing.price(self.send_of(self.tokens[item], reader, replica)).value
            self.known_sends[key] = (2.0 if returned else 1.0) * price
        return self.known_sends[key]

    def send_of(self, tokens: int, reader: Reader, replica: int) -> Task:
        """The send of an item's outputs."""
        return Task(
            module=self.name,
            layers=Layers((self.pricing.models[self.name].layers - 1,)),
            phase="send",
            micro_batch=0,
            group=transfer_group(self.name, reader[0], 0),
            ranks=self.senders[replica],
            sizes=(tokens,),
            degree=self.layout.cp,
            of="F",
            peers=reader[1],
        )


def size_parts(line: CostLine, parts: Sequence[int]) -> Floats:
    """What an item with parts of these tokens adds to a pass, (parts,)."""
    return np.array([*map(sum, zip(*map(line.item_parts, parts), strict=True))])
