"""What ranks have in the memory of their hosts: offloaded activations and optimizer states, rows of embedding tables,
and features that are kept.

The ranks of a node share its memory (plan/node_storage.py); each counts with its own peak over the step.
"""

from collections import defaultdict
from typing import NamedTuple

from planner.errors import Infeasible
from planner.plan.feature_storage import feature_facts
from planner.plan.node_storage import host_bytes
from planner.plan.plan_file import Plan
from planner.plan.tasks.task_table import TaskTable
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.simulate import TaskSpans
from planner.specs.hardware.cluster import node_of_rank
from planner.units import GIB


class HostMemory(NamedTuple):
    """The host with the greatest share of its memory in use; sizes in bytes."""

    node: int
    offloaded: float  # activations, optimizer states and rows of embedding tables of its ranks
    features: float  # outputs of frozen encoders
    allowed: float

    @property
    def held(self) -> float:
        """Bytes of all that is there."""
        return self.offloaded + self.features

    @property
    def fits(self) -> bool:
        """Whether the host has room for all of it."""
        return not exceeds_memory(self.held, self.allowed)


def host_memory(plan_memory: PlanMemory, spans: TaskSpans, tasks: TaskTable) -> HostMemory | None:
    """The fullest host of a simulated step; None where nothing is in the memory of any, or the job limits tokens in
    place of memory.
    """
    plan, offloaded, features = plan_memory.plan, defaultdict[int, float](float), kept_features(plan_memory.plan)
    moved = any(layout.optimizer_offload for layout in plan.layouts.values()) or any(
        work.offload for work in tasks.works
    )
    tables = plan_memory.table_loads
    cached = tables is not None and bool(tables.host.any())
    if plan.uses.limits.tokens_per_rank is not None or not (moved or features or cached):
        return None
    nodes = {rank: node_of_rank(plan.uses.cluster, rank) for rank in range(plan.size)}
    for rank, peak in enumerate(plan_memory.hosts_over_step(spans, tasks).peaks) if moved else ():
        offloaded[nodes[rank]] += peak
    for rank, node in nodes.items():
        offloaded[node] += float(tables.host[tables.position(rank)]) if tables else 0.0
    first_ranks = {node: rank for rank, node in reversed(nodes.items())}
    hosts = (
        HostMemory(
            node,
            offloaded[node],
            features.get(node, 0.0),
            host_bytes(plan.uses.cluster, plan.uses.devices, rank),
        )
        for node, rank in sorted(first_ranks.items())
    )
    return max(hosts, key=lambda host: host.held / max(1.0, host.allowed))


def kept_features(plan: Plan) -> dict[int, float]:
    """Bytes of features by node: those of an encoder are in equal parts on the nodes of its ranks."""
    held = defaultdict[int, float](float)
    for name, layout in plan.layouts.items():
        if layout.features == "host":
            nodes = {node_of_rank(plan.uses.cluster, rank) for rank in layout.ranks}
            for node in nodes:
                held[node] += feature_facts(plan, name).data_bytes(layout.dtype) / len(nodes)
    return dict(held)


def require_host_memory(plan_memory: PlanMemory, spans: TaskSpans, tasks: TaskTable) -> None:
    """Raises Infeasible where the ranks of a node have more in its host's memory than there is."""
    host = host_memory(plan_memory, spans, tasks)
    if host and not host.fits:
        raise Infeasible(
            f"the ranks of node {host.node} would have {host.held / GIB:,.1f} GiB in the memory of their host, and may "
            f"have {host.allowed / GIB:,.1f} GiB",
            where="host_memory",
            fix="offload less; or storage: {host_gib: GIB} in the cluster's file, of what its nodes have",
        )
