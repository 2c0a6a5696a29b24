"""What a rank works on in one micro-batch: its share of the items of its group, and with whom it shares them."""

from dataclasses import dataclass

import torch

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.ulysses import exchange_over
from planner.models.batch import Batch
from planner.models.data import packed_batch, token_unit
from planner.models.exchange import even_sizes
from planner.plan.model import Layout
from planner.plan.task import Task
from planner.runtime.catalogue import sharing
from planner.specs.model import Module


@dataclass(frozen=True, slots=True)
class Loader:
    """Makes the batches of one module on one rank."""

    spec: Module
    layout: Layout
    groups: Groups
    meter: Meter  # of everything that its exchanges send
    seed: int

    def batch(self, task: Task, device: torch.device) -> Batch:
        """Of a forward; without items, that of an idle rank."""
        ranks = sharing(self.layout, task.ranks, self.groups.rank)
        sizes = even_sizes(task.tokens, len(ranks), token_unit(self.spec))
        exchange = exchange_over(self.groups, ranks, sizes, self.meter)
        documents = [*zip(task.items, task.sizes, strict=True)]
        return packed_batch(self.spec, documents, self.seed, exchange=exchange, device=device)
