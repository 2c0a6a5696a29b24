"""A rank's batch of one micro-batch: its shard of the items of its group, and the collectives it shares them by."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.sequence import Sharing, exchange_over
from planner.launch.tensor import block_of
from planner.models.batch import Batch
from planner.models.data import Source, batch_from
from planner.models.dispatch import Dispatch
from planner.plan.mesh import groups_over
from planner.plan.model import Layout
from planner.plan.shares import partners
from planner.plan.task import Task
from planner.specs.layers import Module


@dataclass(frozen=True, slots=True)
class Loader:
    """Creates the batches of one module on one rank."""

    spec: Module
    layout: Layout
    groups: Groups
    meter: Meter  # counts what its collectives send
    source: Source
    dispatch: Mapping[int, Dispatch]  # token dispatch to the experts of each layer

    def batch(self, task: Task, device: torch.device) -> Batch:
        """Batch of a forward task on this rank; empty on an idle rank."""
        ranks, unit = partners(self.layout, task.ranks, self.groups.rank), self.spec.merged
        exchange = exchange_over(self.groups, Sharing(ranks, task.split, task.lengths, unit), self.meter)
        batch = batch_from(self.source, self.spec, task.documents, exchange=exchange, device=device)
        block = groups_over(self.layout, ("tp",))[self.groups.rank]
        tensor = block_of(self.groups, block, len(batch.positions), unit, self.meter)
        return replace(batch, tensor=tensor, dispatch=self.dispatch)
