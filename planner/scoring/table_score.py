"""Seconds that embedding tables add to a step, and the least that any placement of them adds.

The dense part starts when its rank has the sums of all tables, and tables are updated when it has returned their
gradients: a step is the dense part's and that of the slowest rank's tables, and so are the bounds.
"""

from planner.costs.tables import TableLoads, plan_group, possible_groups, rank_samples, shard_options, table_bound
from planner.plan.embeddings import Embeddings
from planner.plan.plan_file import Breakdown, Plan
from planner.scoring.plan_memory import allowed_bytes_on
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.tables import JobTables


def breakdown_with_tables(dense: Breakdown, loads: TableLoads | None) -> Breakdown:
    """Seconds of the mean rank by what it does, with those of its tables."""
    if loads is None:
        return dense
    return Breakdown(
        compute=dense.compute + float(loads.lookup.mean()),
        exposed_comm=dense.exposed_comm + float((loads.exchange + loads.average).mean()),
        idle=dense.idle + float(loads.seconds.max() - loads.seconds.mean()),
    )


def least_table_seconds(plan: Plan) -> float:
    """Seconds that no groups and no placement of a plan's tables beat, of those that its job leaves open."""
    asked, cluster, placed = plan.uses.asked.tables or JobTables(file=""), plan.uses.cluster, plan.embeddings
    assert placed, "only plans with tables are bounded"
    room, samples = allowed_bytes_on(plan, device_of_rank(cluster, 0)), rank_samples(plan)
    bounds = []
    for groups, replicas in possible_groups(cluster, asked.groups, asked.replicas):
        tried = Embeddings(groups=groups, replicas=replicas, average_every=placed.average_every, tables={})
        group = plan_group(plan, tried)
        bounds.append(table_bound(shard_options(plan.uses.tables, group, samples), group, room))
    return min(bounds)
