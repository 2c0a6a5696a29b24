"""Tries every number of groups that divides the ranks, with copies on the same node and apart.

More groups exchange among fewer ranks and have less on the slowest; their copies take memory and are averaged. A number
whose bound is above the best found is not searched, so that the choice is that of a search of all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from planner.costs.tables import (
    CUTS,
    ShardingGroup,
    ShardOptions,
    possible_groups,
    shard_options,
    sharding_group,
    table_bound,
)
from planner.errors import Infeasible
from planner.plan.embeddings import Embeddings, TablePlacement
from planner.specs.base import Indices, with_fields
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Device
from planner.specs.tables import JobTables, Replicas, Table
from planner.strategies.sharded_tables.placement import Placement
from planner.strategies.sharded_tables.search import place_tables
from planner.units import GIB, plural

MORE_NODES = 12  # times that ranks are added, until the tables fit


@dataclass(frozen=True, slots=True)
class TableProblem:
    """Tables, the ranks that they are for, and what a rank has for them: samples of a step, bytes on the device and in
    its share of the host's memory.
    """

    tables: Mapping[str, Table]
    cluster: Cluster
    device: Device
    asked: JobTables
    samples: float
    room: float
    host_room: float

    def group(self, groups: int, replicas: Replicas) -> ShardingGroup:
        """One of so many groups."""
        return sharding_group(self.cluster, self.device, groups, replicas, self.asked.average_every)

    def options(self, group: ShardingGroup) -> ShardOptions:
        """Every way to cut each table over a group."""
        return shard_options(self.tables, group, self.samples)


@dataclass(frozen=True, slots=True)
class PlacedTables:
    """The best placement found, seconds of its slowest rank, a bound over all numbers of groups, and each that was
    tried with its seconds, or with its bound where that is above.
    """

    embeddings: Embeddings
    seconds: float
    bound: float
    tried: tuple[tuple[int, Replicas, float], ...]


def choose_groups(problem: TableProblem, effort: int, skip: bool = True) -> PlacedTables | None:
    """The best groups and placement found; None where the tables fit in no number of groups.

    `skip`: numbers whose bound is above what is found, which changes no choice.
    """
    choices = []
    for groups, replicas in possible_groups(problem.cluster, problem.asked.groups, problem.asked.replicas):
        group = problem.group(groups, replicas)
        bound = table_bound(problem.options(group), group, problem.room)
        choices.append((bound, groups, replicas))
    best: Placement | None = None
    tried = []
    for bound, groups, replicas in sorted(choices):
        if bound == inf or (skip and best and bound >= best.slowest):
            tried.append((groups, replicas, bound))
            continue
        group = problem.group(groups, replicas)
        found = place_tables(problem.options(group), group, problem.room, problem.host_room, effort)
        tried.append((groups, replicas, found.slowest if found else inf))
        if found and (best is None or found.slowest < best.slowest):
            best = found
    if best is None:
        return None
    return PlacedTables(embeddings_of(best), best.slowest, min(choices)[0], tuple(sorted(tried)))


def embeddings_of(placement: Placement) -> Embeddings:
    """A placement as a plan says it."""
    options, group = placement.options, placement.group
    tables = {
        name: TablePlacement(
            cut=CUTS[options.cut[option]], at=Indices(sorted(where)), cache=float(options.cache[option])
        )
        for name, option, where in zip(options.names, placement.chosen, placement.where, strict=True)
    }
    return Embeddings(groups=group.groups, replicas=group.replicas, average_every=group.average_every, tables=tables)


def placement_error(problem: TableProblem, file: str) -> Infeasible:
    """The error of tables that fit in no group: which number of groups, or of ranks, would do."""
    largest = max(problem.tables, key=lambda name: problem.tables[name].bytes)
    size = sum(table.bytes for table in problem.tables.values())
    asked = problem.asked.groups
    among = f"{plural(asked, 'group')} of {problem.cluster.size // asked} ranks" if asked else "any group of ranks"
    message = (
        f"{plural(len(problem.tables), 'table')} of {size / GIB:,.1f} GiB, the largest `{largest}` of "
        f"{problem.tables[largest].bytes / GIB:,.1f} GiB, do not fit {among}: a rank has {problem.room / GIB:.1f} GiB "
        "for them"
    )
    able = (fix for fix, changed in larger_problems(problem) if choose_groups(changed, effort=1))
    fix = next(able, "a smaller dense part, narrower tables, or devices with more memory")
    return Infeasible(message, where=f"{file} (tables)", fix=fix)


def larger_problems(problem: TableProblem) -> Iterator[tuple[str, TableProblem]]:
    """The problem with more memory for a group, and how: fewer groups than are fixed; then more ranks in one."""
    for groups in range((problem.asked.groups or 1) - 1, 0, -1):
        if problem.cluster.size % groups == 0:
            yield f"groups: {groups}", replace(problem, asked=with_fields(problem.asked, groups=groups))
    (kind, *_), levels = problem.cluster.ranks, problem.cluster.levels
    least = sum(table.bytes for table in problem.tables.values()) / max(1.0, problem.room)
    nodes = max(problem.cluster.size // kind.per_node + 1, ceil(least / kind.per_node))
    for more in range(MORE_NODES if problem.room > 0 else 0):
        count = (nodes + more * max(1, nodes // 8)) * kind.per_node
        last = with_fields(levels[-1], ranks=max(count, levels[-1].ranks))
        wider = with_fields(problem.cluster, ranks=(with_fields(kind, count=count),), levels=(*levels[:-1], last))
        yield f"{count} ranks in one group", replace(problem, cluster=wider, asked=with_fields(problem.asked, groups=1))
