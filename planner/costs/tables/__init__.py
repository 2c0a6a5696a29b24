"""Prices of embedding tables on groups of ranks: every way to cut each, in seconds and bytes."""

from planner.costs.tables.shard_options import (
    CUTS,
    ON_ALL,
    ON_NODES,
    ON_RANKS,
    ShardOptions,
    priced_cuts,
    shard_options,
    shard_ranks,
)
from planner.costs.tables.sharding_group import ShardingGroup, possible_groups, sharding_group
from planner.costs.tables.table_bound import cheapest, least_seconds, table_bound
from planner.costs.tables.table_loads import TableLoads, plan_group, rank_samples, table_loads
