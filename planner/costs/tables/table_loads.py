"""What the tables of a plan take of each rank of a group: seconds of a step by their use, and bytes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs.tables.shard_options import ShardOptions, priced_cuts, shard_ranks
from planner.costs.tables.sharding_group import ShardingGroup, sharding_group
from planner.plan.embeddings import Embeddings
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import device_of_rank

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TableLoads:
    """Of each rank of a group, (ranks,): seconds by use, and bytes; each group has the same. `shards` has one way to
    cut each table: the plan's.
    """

    group: ShardingGroup
    shards: ShardOptions
    lookup: Floats
    exchange: Floats
    average: Floats
    state_bytes: Floats  # of rows and the optimizer's states
    held: Floats  # bytes on the device
    host: Floats  # bytes in host memory

    @property
    def seconds(self) -> Floats:
        """Seconds of a step."""
        return self.lookup + self.exchange + self.average

    @property
    def slowest(self) -> int:
        """The rank of the group that takes longest, the first of equal ones."""
        return int(self.seconds.argmax())

    @property
    def imbalance(self) -> float:
        """Seconds of the slowest rank over those of the mean one."""
        return float(self.seconds.max() / self.seconds.mean())

    def position(self, rank: int) -> int:
        """The place of a rank of the job in its group."""
        return rank // self.group.groups if self.group.replicas == "node" else rank % self.group.ranks


def table_loads(plan: Plan) -> TableLoads | None:
    """What the tables of a legal plan take; None where it has none."""
    placed = plan.embeddings
    if placed is None:
        return None
    group, tables = plan_group(plan, placed), plan.uses.tables
    cuts = [[(each.cut, each.parts, each.cache)] for each in (placed.tables[name] for name in tables)]
    shards = priced_cuts(tables, cuts, group, rank_samples(plan))
    sums = {name: np.zeros(group.ranks) for name in ("lookup", "exchange", "average", "state_bytes", "held", "host")}
    for number, name in enumerate(tables):
        ranks = shard_ranks(int(shards.cut[number]), placed.tables[name].at, group)
        for of, values in sums.items():
            values[ranks] += getattr(shards, of)[number]
    return TableLoads(group, shards, **sums)


def plan_group(plan: Plan, placed: Embeddings) -> ShardingGroup:
    """The groups that a plan's tables are in."""
    device = plan.uses.devices[device_of_rank(plan.uses.cluster, 0)]
    return sharding_group(plan.uses.cluster, device, placed.groups, placed.replicas, placed.average_every)


def rank_samples(plan: Plan) -> float:
    """Samples of a rank in a step, in the mean."""
    items = max((len(items) for items in plan.uses.items.values()), default=0)
    return items / len(plan.steps) / plan.size
