"""Why an embedding table is where it is: what its shards take, beside other ways to cut it."""

from planner.costs.tables import CUTS, plan_group, rank_samples, shard_options, shard_ranks, table_loads
from planner.plan.plan_file import Plan
from planner.specs.base import Spec
from planner.units import GIB


class OtherCut(Spec, omit_defaults=False):
    """The cheapest way to cut a table in one manner, in seconds of all ranks of a group, and of one with a shard."""

    cut: str
    parts: int
    cache: float
    rank_seconds: float
    group_seconds: float
    rank_gib: float


class WhyTable(Spec, omit_defaults=False, kw_only=True):
    """Why a table is where it is: what its shards take, of what its ranks take, beside other ways to cut it."""

    plan: str
    table: str
    cut: str
    at: str | int
    cache: float
    lookup: float  # seconds of a rank with a shard
    exchange: float
    average: float
    rank_seconds: float  # of all tables on the slowest rank that has a shard
    slowest_seconds: float  # of the slowest rank of a group
    others: tuple[OtherCut, ...]  # the plan's own among them


def why_table(plan: Plan, name: str) -> WhyTable:
    """Why a table of a plan is where it is."""
    loads, placed = table_loads(plan), plan.embeddings
    assert loads and placed, "only plans with tables are asked"
    number, each, shards = [*plan.uses.tables].index(name), placed.tables[name], loads.shards
    options = shard_options({name: plan.uses.tables[name]}, plan_group(plan, placed), rank_samples(plan))
    least: dict[tuple[str, bool], OtherCut] = {}
    for option in sorted(options.of(0), key=lambda option: float(options.totals[option])):
        other = OtherCut(
            cut=CUTS[options.cut[option]],
            parts=int(options.parts[option]),
            cache=float(options.cache[option]),
            rank_seconds=float(options.seconds[option]),
            group_seconds=float(options.totals[option]),
            rank_gib=float(options.held[option]) / GIB,
        )
        least.setdefault((other.cut, other.cache > 0), other)
    return WhyTable(
        plan=plan.name,
        table=name,
        cut=each.cut,
        at=each.at.to_file() if each.at else "all",
        cache=each.cache,
        lookup=float(shards.lookup[number]),
        exchange=float(shards.exchange[number]),
        average=float(shards.average[number]),
        rank_seconds=float(loads.seconds[shard_ranks(int(shards.cut[number]), each.at, loads.group)].max()),
        slowest_seconds=float(loads.seconds.max()),
        others=(*least.values(),),
    )
