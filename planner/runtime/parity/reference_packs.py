"""Packs of items that the parity reference processes at a time: single items, which do not attend to each other; or a
whole micro-batch where its tokens interact, in load balancing of experts or in the capacity of an expert for one rank's
tokens. And the share of each target in the loss of a step, counted from the targets that are in the data.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from math import sqrt
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from planner.models import IGNORED, Batch
from planner.models.inputs import SampleSource, batch_of_documents
from planner.models.networks import Network
from planner.plan.plan_file import Layout, PlanInputs
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import ItemKey
from planner.plan.tokens.token_shards import rank_token_runs
from planner.specs.layers import Module
from planner.specs.workload.items import Document
from planner.specs.workload.loss_weighting import LossWeighting


class ReferencePack(NamedTuple):
    documents: tuple[Document, ...]  # of its items, in order
    slices: tuple[Tensor, ...] = ()  # positions of the tokens of each rank, in their order there; (): one rank has all


def reference_packs(spec: Module, layout: Layout, forwards: Sequence[Task]) -> Iterator[ReferencePack]:
    """Packs that contain each item of a step once. `forwards`: tasks of one chunk of layers of the module."""
    moe = spec.routed_experts
    if moe is None or not (moe.balance or moe.capacity):
        for task in forwards:
            yield from (ReferencePack(tuple(of_item)) for _, of_item in groupby(task.documents, itemgetter(0)))
        return
    for _, tasks in groupby(sorted(forwards, key=micro_batch), micro_batch):
        yield micro_batch_pack(spec, layout, [task for task in tasks if task.items])


def micro_batch_pack(spec: Module, layout: Layout, tasks: Sequence[Task]) -> ReferencePack:
    """All items of one micro-batch, group by group."""
    items = [item for task in tasks for item in zip(task.items, task.sizes, strict=True)]
    starts = dict(zip((item for item, _ in items), accumulate((size for _, size in items), initial=0), strict=False))
    slices = []
    for task in tasks:
        for rank in task.ranks:
            own = [
                torch.arange(starts[run.item] + run.first, starts[run.item] + run.last)
                for run in rank_token_runs(spec, layout, task, rank)
            ]
            slices += [torch.cat(own)] if own else []
    return ReferencePack(tuple(document for task in tasks for document in task.documents), tuple(slices))


def micro_batch(task: Task) -> int:
    assert task.micro_batch is not None, "forwards have one"
    return task.micro_batch


class TargetShares:
    """Shares of the loss of one step; `counts`: targets of every item that has a loss."""

    def __init__(self, weighting: LossWeighting, counts: Mapping[ItemKey, int]) -> None:
        self.weighting, self.counts = weighting, counts
        present = [count for count in counts.values() if count]
        self.targets, self.samples, self.roots = sum(present), len(present), sum(map(sqrt, present))

    def share(self, item: ItemKey) -> float:
        """The factor of the loss of each target of an item in the loss of the step."""
        count = self.counts[item]
        if not count:
            return 0.0
        if self.weighting == "token":
            return 1 / self.targets
        return 1 / self.samples / count if self.weighting == "sample" else 1 / self.roots / sqrt(count)

    def loss(self, module: str, pack: ReferencePack, model: Network, batch: Batch) -> Tensor:
        """The part (scalar) of a pack in the loss of the step."""
        summed: Tensor
        items = [*{document.item for document in pack.documents}]
        if len(items) == 1:
            summed = model(batch)
            return summed * self.share((module, items[0]))
        unit = model.spec.tokens_per_output
        each = [[self.share((module, item))] * (tokens // unit) for item, tokens, _ in pack.documents]
        weights = torch.tensor([share for of_document in each for share in of_document], dtype=torch.float64)
        summed = model(replace(batch, weights=weights.to(batch.positions.device)))
        return summed


class SharesOfTasks(TargetShares):
    """Shares of the loss of one step of several tasks: each item has what the tasks with its sample give it."""

    def __init__(self, uses: PlanInputs, counts: Mapping[ItemKey, int]) -> None:
        super().__init__(uses.loss, counts)
        given = [
            (task.weight, {(name, sample) for name in task.modules for sample in task.samples})
            for task in uses.tasks.values()
        ]
        self.of_tasks = [
            (weight, TargetShares(uses.loss, {item: count for item, count in counts.items() if item in of_task}))
            for weight, of_task in given
        ]

    def share(self, item: ItemKey) -> float:
        return sum(weight * shares.share(item) for weight, shares in self.of_tasks if item in shares.counts)


def shares_of(uses: PlanInputs, counts: Mapping[ItemKey, int]) -> TargetShares:
    """The shares of a step with these targets."""
    return SharesOfTasks(uses, counts) if uses.tasks else TargetShares(uses.loss, counts)


def count_targets(source: SampleSource, spec: Module, documents: Iterable[Document]) -> Counter[int]:
    """Targets of each item, counted in its data."""
    counts: Counter[int] = Counter()
    for document in documents:
        targets = batch_of_documents(source, spec, (document,)).targets
        counts[document.item] += int((targets != IGNORED).sum()) if targets.dim() == 1 else len(targets)
    return counts
