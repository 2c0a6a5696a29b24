"""Sums gradients of replicated parameters that FSDP2 does not reduce, once a step.

The ranks of a tensor-parallel group replicate norms, biases after row-parallel products, and whatever does not divide;
each has the gradient from its own tokens. The first and the last pipeline stage replicate a tied embedding, for the
words and for the logits (arXiv 1909.08053, section 5.1, and 2104.04473). Equal sums keep the replicas equal.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.communication import CommunicationMeter, ProcessGroups
from planner.models import held_values
from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.plan_file import Layout
from planner.runtime.state.sharded_stage import ShardedStage
from planner.specs.base import Ranks
from planner.specs.layers import Module

EMBEDDING = "embedding.weight"
LARGE_BYTES = 2**24  # gradients from this size are all-reduced one by one, in place; smaller ones in one call


@torch.no_grad()
def sum_replicated_gradients(stages: Sequence[ShardedStage], groups: ProcessGroups, meter: CommunicationMeter) -> None:
    """Sums gradients of a module's replicated parameters, between FSDP2's reductions and the update, on every rank."""
    spec, layout, rank = stages[0].spec, stages[0].layout, stages[0].clock.rank
    tp_group = groups_over(layout, ("tp",))[rank]
    if len(tp_group) > 1:
        sum_over_group(
            [x for stage in stages for x in gradients(stage, replicated_names(stage))], groups[tp_group], meter
        )
    if ties_across_stages(spec, layout):
        tables = [x for stage in stages for x in gradients(stage, [EMBEDDING])]
        if tables:
            sum_over_group(tables, groups[embedding_head_ranks(layout, rank)], meter)


def replicated_names(stage: ShardedStage) -> list[str]:
    """Parameters replicated over tp. Experts are reduced over their own mesh."""
    return [name for name in stage.shards if name not in stage.splits and name not in stage.expert_parameters]


def ties_across_stages(spec: Module, layout: Layout) -> bool:
    """Whether the first and the last stage both have the tied embedding."""
    return spec.ties_head and layout.pp > 1


def embedding_head_ranks(layout: Layout, rank: int) -> Ranks:
    """The ranks of the first and last stage in this rank's pipeline."""
    line = groups_over(layout, ("pp",))[rank]
    return Ranks((line[0], line[-1]))


def gradients(stage: ShardedStage, names: Sequence[str]) -> Iterator[Tensor]:
    """Gradients of this rank's shards of these parameters, of the shards' shapes; those that exist."""
    for name in names:
        gradient = stage.shards[name].grad if name in stage.shards else None
        if gradient is not None:
            yield held_values(gradient)


def sum_over_group(tensors: Sequence[Tensor], group: dist.ProcessGroup, meter: CommunicationMeter) -> None:
    """Sums tensors (any shapes) over a group, in place: small ones in one all-reduce, each large one in its own."""
    small = [x for x in tensors if x.nbytes < LARGE_BYTES]
    for x in tensors:
        if x.nbytes >= LARGE_BYTES:
            all_reduce(x, group, meter)
    if sum(x.numel() for x in small):
        packed = torch.cat([x.flatten() for x in small])
        all_reduce(packed, group, meter)
        for x, part in zip(small, torch.split(packed, [x.numel() for x in small]), strict=True):
            x.copy_(part.view_as(x))


def all_reduce(x: Tensor, group: dist.ProcessGroup, meter: CommunicationMeter) -> None:
    """Sum x (any shape) over a group, in place."""
    ranks = dist.get_world_size(group)
    with meter.measure(x.device, "dp", 2 * x.nbytes * (ranks - 1) // ranks):
        dist.all_reduce(x, group=group)
