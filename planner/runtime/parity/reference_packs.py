"""Packs of items that the parity reference processes at a time: single items, which do not attend to each other; or a
whole micro-batch where its tokens interact, in load balancing of experts or in the capacity of an expert for one rank's
tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.plan.tokens.token_shards import rank_token_runs
from planner.specs.layers import Module
from planner.specs.workload.items import Document


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
