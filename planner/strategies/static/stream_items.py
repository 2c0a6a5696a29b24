"""Which replica of an encoder computes which items: each in the first micro-batch that reads it, by the replica whose
ranks read it, unless so many fall to that one that another ends earlier, its outputs and their gradients sent.
"""

from collections.abc import Mapping, Sequence

from planner.costs import Pricing
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.plan.tokens.reading_stages import transfer_group
from planner.specs.base import Layers, Ranks
from planner.specs.workload.items import Size, item_tokens, part_lengths
from planner.specs.workload.samples import SampleBatch
from planner.strategies.static.static_plan import item_line, replica_groups

MicroBatchOf = dict[int, int]  # item → micro-batch
ReplicaOf = dict[int, Ranks]  # item → ranks of the first stage of the group that works on it


def first_reads(
    batch: SampleBatch, name: str, at: Mapping[str, MicroBatchOf], ranks: Mapping[str, ReplicaOf]
) -> tuple[MicroBatchOf, dict[int, tuple[str, Ranks]]]:
    """Item of a module → the first micro-batch in which it is read; and the module and ranks that read it there."""
    when: MicroBatchOf = {}
    by: dict[int, tuple[str, Ranks]] = {}
    for target, feeds in batch.feeds[name].items():
        for item, readers in feeds.items():
            for reader in readers:
                if item not in when or at[target][reader] < when[item]:
                    when[item], by[item] = at[target][reader], (target, ranks[target][reader])
    return when, by


class StreamItems:
    """Assigns the items of one encoder to its replicas."""

    def __init__(self, pricing: Pricing, name: str, layout: Layout, sizes: Mapping[int, Size]) -> None:
        self.pricing, self.name, self.layout, self.sizes = pricing, name, layout, sizes
        self.replicas = [group.ranks for group in replica_groups(layout).values()]
        last = {*stage_ranks(layout, layout.pp - 1)}
        self.senders = [Ranks(rank for rank in ranks if rank in last) for ranks in self.replicas]
        line = item_line(pricing, name, layout)
        self.loads = {item: sum(map(line.item_seconds, part_lengths(size))) for item, size in sizes.items()}
        self.known_near: dict[Ranks, list[int]] = {}  # ranks that read → replicas that need not send to others

    def by_micro_batch(
        self, when: MicroBatchOf, by: Mapping[int, tuple[str, Ranks]], count: int
    ) -> list[list[list[int]]]:
        """By micro-batch, the items on each replica, the longest placed first. Replicas are compared by all that they
        have so far, or within the micro-batch where ZeRO-3 synchronises them in each.
        """
        longest_first = sorted(self.sizes, key=lambda item: (-self.loads[item], item))
        items_of: list[list[int]] = [[] for _ in range(count)]
        for item in longest_first:
            items_of[when[item]].append(item)
        load, found = [0.0 for _ in self.replicas], []
        for items in items_of:
            load = [0.0 for _ in self.replicas] if self.layout.zero == 3 else load
            cells = [list[int]() for _ in self.replicas]
            for item in items:
                replica = self.replica_of(item, *by[item], load)
                load[replica] += self.loads[item]
                cells[replica].append(item)
            found.append(cells)
        return found

    def replica_of(self, item: int, reader: str, ranks: Ranks, load: Sequence[float]) -> int:
        """The replica that has an item's outputs at its readers first: one beside them, or the least loaded."""
        least = min(range(len(load)), key=lambda each: (load[each], each))
        near = min(self.near(ranks), key=lambda each: (load[each], each), default=least)
        if near == least or load[near] <= load[least] + self.sending_seconds(item, reader, least, ranks):
            return near
        return least

    def near(self, ranks: Ranks) -> list[int]:
        """The replicas that send these readers nothing from beyond them: they lie within their ranks, or around."""
        if ranks not in self.known_near:
            of = {*ranks}
            self.known_near[ranks] = [
                number for number, own in enumerate(self.replicas) if of >= {*own} or of <= {*own}
            ]
        return self.known_near[ranks]

    def sending_seconds(self, item: int, reader: str, replica: int, ranks: Ranks) -> float:
        """Seconds of sending an item's outputs from a replica to those who read it, and gradients back if any."""
        send = Task(
            module=self.name,
            layers=Layers((self.pricing.models[self.name].layers - 1,)),
            phase="send",
            micro_batch=0,
            group=transfer_group(self.name, reader, 0),
            ranks=self.senders[replica],
            sizes=(item_tokens(self.sizes[item]),),
            degree=self.layout.cp,
            of="F",
            peers=ranks,
        )
        returned = self.name not in self.pricing.flows or self.pricing.flows[self.name].has_backward()
        return (2.0 if returned else 1.0) * self.pricing.price(send).value
