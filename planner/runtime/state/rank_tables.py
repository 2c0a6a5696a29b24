"""The embedding tables of a rank: its shards, what its group of ranks exchanges of them, and their copies in others.

A rank has samples, and every rank of its group shards of tables that these read. Lookups go to who has the rows, sums
come back, and gradients of sums go the way of lookups: one all-to-all each. Replicated tables are read where samples
are, and their gradients summed over the group. Behind every `average_every` steps the weights and optimizer states of a
shard's copies become their mean: the same bits, since one all-reduce makes them.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.communication import CommunicationMeter, ProcessGroups, RaggedGroup
from planner.models import EmbeddingShard
from planner.models.inputs import ClickSource
from planner.plan.embeddings import TableShard, ranks_in_node, table_shards
from planner.plan.plan_file import Plan
from planner.specs.base import Ranks


class RankTables:
    """The tables of one rank. All ranks create it together, and call its methods together."""

    def __init__(self, plan: Plan, source: ClickSource, groups: ProcessGroups, of: Tensor, c: float | None) -> None:
        """`of`: a tensor with the dtype and device of the weights; `c`: of AdaGrad, None: the number of groups."""
        placed, tables = plan.embeddings, plan.uses.tables
        assert placed, "only plans with tables have them"
        members = placed.group_ranks(plan.size)
        self.ranks = next(ranks for ranks in members if groups.rank in ranks)
        self.place = self.ranks.index(groups.rank)
        self.copies = Ranks(ranks[self.place] for ranks in members)
        self.placed, self.source, self.groups, self.of = placed, source, groups, of
        self.scale = float(placed.groups if c is None else c)
        group = groups[self.ranks] if len(self.ranks) > 1 else None
        self.group = RaggedGroup(group, CommunicationMeter(), "tables")  # no task's: a meter of its own
        self.columns = dict(zip(tables, accumulate((each.dim for each in tables.values()), initial=0), strict=False))
        per_node = ranks_in_node(plan.size, plan.ranks[0].per_node, placed.groups, placed.replicas)
        every = [
            (name, shard)
            for name, table in tables.items()
            for shard in table_shards(table, placed.tables[name], len(self.ranks), per_node)
        ]
        at_place = [each for each in every if each[1].rank == self.place]
        self.held = {name: EmbeddingShard(name, tables[name], shard, source.seed, of) for name, shard in at_place}
        self.replicated = [name for name in tables if placed.tables[name].cut == "replicated"]
        self.own = [shard for name, shard in self.held.items() if name not in self.replicated]
        exchanged = [each for each in every if each[0] not in self.replicated]
        self.by_rank = [[each for each in exchanged if each[1].rank == rank] for rank in range(len(self.ranks))]
        self.reads: dict[str, Tensor] = {}  # by table: of this rank, (lookups, 2), a sample and a row that it reads
        self.samples = [0]  # of the group's ranks before each, and of all, in the step

    def load(self, by_rank: Sequence[Sequence[int]]) -> None:
        """Draw what samples of a step read: `by_rank` are those of each rank of the group."""
        self.samples = [*accumulate(map(len, by_rank), initial=0)]
        rows = [self.source.rows(item) for item in by_rank[self.place]]
        for at, name in enumerate(self.columns):
            each = [of_item[at] for of_item in rows]
            bags = torch.repeat_interleave(torch.tensor([len(found) for found in each], dtype=torch.int64))
            self.reads[name] = torch.stack([bags, torch.cat([bags[:0], *each])], 1).to(self.of.device)

    def lookup(self) -> Tensor:
        """Sums of all tables for each sample of this rank, (samples, width)."""
        first, last = self.samples[self.place : self.place + 2]
        sums = self.of.new_zeros(last - first, sum(table.dim for table in self.source.tables.values()))
        for name in self.replicated:
            self.part(sums, name, self.held[name].shard).copy_(self.held[name].sums(self.reads[name], last - first))
        sent = [[self.lookups_of(each, first) for each in of_rank] for of_rank in self.by_rank]
        counts = torch.tensor([len(each) for of_rank in sent for each in of_rank], device=self.of.device)
        own, size = len(self.own), self.group.size
        told: list[int] = self.group.all_to_all_no_grad(counts, [*map(len, sent)], [own] * size).tolist()
        received = [sum(told[rank * own : (rank + 1) * own]) for rank in range(size)]
        nothing = self.of.new_zeros(0, 2, dtype=torch.int64)
        flat = torch.cat([nothing, *(each for of_rank in sent for each in of_rank)])
        sizes = [sum(map(len, of_rank)) for of_rank in sent]
        parts = self.group.all_to_all_no_grad(flat, sizes, received).split(told)  # type: ignore[no-untyped-call]
        summed = [shard.sums(torch.cat(parts[at::own]), self.samples[-1]) for at, shard in enumerate(self.own)]
        found = [each[a:b].reshape(-1) for a, b in pairwise(self.samples) for each in summed]
        for (name, piece), values in zip(self.pieces(), self.exchange(found, back=True), strict=True):
            self.part(sums, name, piece).add_(values.view(-1, piece.columns))  # shards of rows add up
        return sums

    def lookups_of(self, of: tuple[str, TableShard], first: int) -> Tensor:
        """What own samples read of a shard, (lookups, 2): sample, counted over the group, and row of the shard."""
        lookups, shard = self.reads[of[0]], of[1]
        rows = lookups[:, 1] - shard.first_row
        return torch.stack([lookups[:, 0] + first, rows], 1)[(rows >= 0) & (rows < shard.rows)]

    def pieces(self) -> list[tuple[str, TableShard]]:
        """The shards of the group, rank by rank."""
        return [each for of_rank in self.by_rank for each in of_rank]

    def exchange(self, parts: Sequence[Tensor], back: bool) -> tuple[Tensor, ...]:
        """Bring sums `back` to the samples, one part for each rank's samples and own shard; or gradients of these to
        the shards. Parts have one dimension.
        """
        each = [b - a for a, b in pairwise(self.samples)]
        mine = [[count * shard.shard.columns for shard in self.own] for count in each]
        theirs = [[each[self.place] * shard.columns for _, shard in of_rank] for of_rank in self.by_rank]
        sent, received = (mine, theirs) if back else (theirs, mine)
        flat = torch.cat([*parts, self.of.new_zeros(0)])
        got = self.group.all_to_all_no_grad(flat, [*map(sum, sent)], [*map(sum, received)])
        return got.split([size for sizes in received for size in sizes])  # type: ignore[no-any-return, no-untyped-call]

    def backward(self, gradient: Tensor) -> None:
        """Bring gradients of sums (samples, width) to the shards: each of this rank's then has those of its rows."""
        parts = self.exchange([self.part(gradient, *each).reshape(-1) for each in self.pieces()], back=False)
        for at, shard in enumerate(self.own):
            shard.add_gradient(torch.cat(parts[at :: len(self.own)]).view(-1, shard.shard.columns))
        for name in self.replicated:
            whole = self.held[name]
            whole.add_gradient(self.part(gradient, name, whole.shard))
            total = self.group.all_reduce_no_grad(whole.whole_gradient())
            whole.gradient = torch.arange(len(total), device=total.device), total

    def update(self, rate: float, step: int) -> None:
        """Update what was read, by the mean over the group's samples; behind every so many steps average copies."""
        for shard in self.held.values():
            shard.update(rate, self.placed.groups, self.scale)
        for held in self.copies_after(step).get(self.copies, {}).values():
            dist.all_reduce(held, group=self.groups[self.copies])
            held /= self.placed.groups

    def copies_after(self, step: int) -> dict[Ranks, dict[str, Tensor]]:
        """Weights and optimizer states that ranks with copies of them average behind a step, counted from 1."""
        if self.placed.groups == 1 or step % self.placed.average_every:
            return {}
        weights = {f"tables.{name}": shard.weight for name, shard in self.held.items()}
        states = {f"tables.{name} (state)": shard.state for name, shard in self.held.items()}
        return {self.copies: {name: held for name, held in (weights | states).items() if held.numel()}}

    def whole(self, values: Mapping[str, Tensor], every_copy: bool) -> dict[str, Tensor]:
        """Whole tables on rank 0, from what each rank says of its shards: those of the first group, or the sum over the
        groups. A replicated table is the first rank's of a group. Every rank calls it.
        """
        found = {}
        for name, table in self.source.tables.items():
            found[name] = self.of.new_zeros(table.rows, table.dim)
            first = every_copy or self.groups.rank == self.copies[0]
            if name in values and first and not (self.place and name in self.replicated):
                row, column = self.held[name].shard.first_row, self.held[name].shard.first_column
                rows, columns = values[name].shape
                found[name][row : row + rows, column : column + columns] = values[name]
            dist.reduce(found[name], 0)
        return found

    def whole_weights(self) -> dict[str, Tensor]:
        """The weights of all tables, on rank 0."""
        return self.whole({name: shard.weight for name, shard in self.held.items()}, every_copy=False)

    def whole_gradients(self) -> dict[str, Tensor]:
        """The gradients of all tables, on rank 0."""
        return self.whole({name: shard.whole_gradient() for name, shard in self.held.items()}, every_copy=True)

    def part(self, sums: Tensor, name: str, shard: TableShard) -> Tensor:
        """The columns of a shard among the sums of all tables: a view, (samples, columns)."""
        return sums.narrow(1, self.columns[name] + shard.first_column, shard.columns)
