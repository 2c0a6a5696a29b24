"""A rank's batch of one micro-batch: its shard of the items of its group, and the collectives it shares them by."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from planner.launch.communication import (
    CommunicationMeter,
    ProcessGroups,
    SharedMicroBatch,
    sequence_parallel_over,
    tensor_parallel_over,
)
from planner.models import Batch, TokenDispatcher
from planner.models.inputs import ItemGrids, PlannedItems, SampleSource, batch_of_documents
from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.plan.tokens.token_shards import sharing_ranks
from planner.specs.layers import Module
from planner.specs.workload.loss_weighting import LossWeighting, target_weight


@dataclass(frozen=True, slots=True)
class BatchLoader:
    """Creates the batches of one module on one rank."""

    spec: Module
    layout: Layout
    groups: ProcessGroups
    meter: CommunicationMeter  # counts what its collectives send
    source: SampleSource
    dispatch: Mapping[int, TokenDispatcher]  # token dispatch to the experts of each layer
    grids: ItemGrids  # of its items, whose tokens are places of images
    loss: LossWeighting = "token"

    def batch(self, task: Task, device: torch.device) -> Batch:
        """Batch of a forward task on this rank; empty on an idle rank."""
        ranks, unit = sharing_ranks(self.layout, task.ranks, self.groups.rank), self.spec.tokens_per_output
        sharing = SharedMicroBatch(ranks, task.split, task.lengths, unit, bool(task.parts))
        exchange = sequence_parallel_over(self.groups, sharing, self.meter)
        batch = batch_of_documents(
            self.source,
            self.spec,
            task.documents,
            sequence_parallel=exchange,
            device=device,
            planned=PlannedItems(None if self.loss == "token" else self.target_weights(task), self.grids),
        )
        block = groups_over(self.layout, ("tp",))[self.groups.rank]
        tensor = tensor_parallel_over(self.groups, block, len(batch.positions), unit, self.meter)
        return replace(batch, tensor_parallel=tensor, dispatchers=self.dispatch)

    def target_weights(self, task: Task) -> dict[int, float]:
        """By item of a task: the weight of each of its targets in the loss."""
        counts = target_counts(self.source, self.spec, task)
        return {item: target_weight(self.loss, count) for item, count in zip(task.items, counts, strict=True)}


def target_counts(source: SampleSource, spec: Module, task: Task) -> list[int]:
    """The number of targets of each item of a task."""
    return [source.target_count(spec, *item) for item in zip(task.items, task.sizes, strict=True)]
