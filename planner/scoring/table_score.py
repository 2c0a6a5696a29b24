"""Seconds that embedding tables add to a step, and the least that any placement of them adds.

The dense part starts when its rank has the sums of all tables, and tables are updated when it has returned their
gradients: a step is the dense part's and that of the slowest rank's tables, and so are the bounds.
"""

from dataclasses import dataclass

from planner.costs.tables import TableLoads, plan_group, possible_groups, rank_samples, shard_options, table_bound
from planner.costs.tables import table_loads as loads_of
from planner.plan.embeddings import Embeddings
from planner.plan.plan_file import Breakdown, Plan
from planner.scoring.plan_memory import allowed_bytes_on
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.tables import JobTables


@dataclass(frozen=True, slots=True, eq=False)
class TableScore:
    """What tables take of the ranks of a group, and the least seconds of the slowest over all groups and placements."""

    loads: TableLoads
    bound: float

    @property
    def seconds(self) -> float:
        """Seconds of the slowest rank."""
        return float(self.loads.seconds.max())

    def breakdown(self, dense: Breakdown) -> Breakdown:
        """Seconds of the mean rank by what it does, with those of the dense part."""
        loads = self.loads
        return Breakdown(
            compute=dense.compute + float(loads.lookup.mean()),
            exposed_comm=dense.exposed_comm + float((loads.exchange + loads.average).mean()),
            idle=dense.idle + self.seconds - float(loads.seconds.mean()),
        )


def table_score(plan: Plan) -> TableScore | None:
    """The seconds of a plan's tables; None where it has none."""
    loads = loads_of(plan)
    return TableScore(loads, least_seconds(plan)) if loads else None


def least_seconds(plan: Plan) -> float:
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
