"""Gradients of what several ranks hold whole beside the states that FSDP2 spreads, summed once a step.

The ranks of a tensor-parallel block have norms, biases of sums, and whatever does not divide, whole, and each its own
rows' gradient of them. The first and the last stage of a pipeline have a tied embedding, one for its words and one for
its logits (arXiv 1909.08053, section 5.1, and 2104.04473). All go on with the same sums, and so with the same weights.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.plan.mesh import groups_over
from planner.plan.model import Layout
from planner.runtime.stage import Stage
from planner.specs.base import Ranks
from planner.specs.layers import Module

EMBEDDING = "embedding.weight"
LARGE_BYTES = 2**24  # of a gradient that is summed where it lies; smaller ones travel together


@torch.no_grad()
def settle(stages: Sequence[Stage], groups: Groups, meter: Meter) -> None:
    """What one rank has of a module, once its gradients are reduced and before its update; every rank calls it."""
    spec, layout, rank = stages[0].spec, stages[0].layout, stages[0].clock.rank
    block = groups_over(layout, ("tp",))[rank]
    if len(block) > 1:
        add_up([x for stage in stages for x in gradients(stage, whole(stage))], groups[block], meter)
    if ties(spec, layout):
        tables = [x for stage in stages for x in gradients(stage, [EMBEDDING])]
        if tables:
            add_up(tables, groups[ends(layout, rank)], meter)


def whole(stage: Stage) -> list[str]:
    """Parameters that every rank of a tensor-parallel block has alike. Experts are reduced over a mesh of their own."""
    return [name for name in stage.shards if name not in stage.splits and name not in stage.experts]


def ties(spec: Module, layout: Layout) -> bool:
    """Whether two stages have the same table."""
    return spec.ties and layout.pp > 1


def ends(layout: Layout, rank: int) -> Ranks:
    """The first and the last rank of the pipeline through this one."""
    line = groups_over(layout, ("pp",))[rank]
    return Ranks((line[0], line[-1]))


def gradients(stage: Stage, names: Sequence[str]) -> Iterator[Tensor]:
    """As this rank holds them."""
    for name in names:
        gradient = stage.shards[name].grad if name in stage.shards else None
        if gradient is not None:
            yield gradient.to_local() if isinstance(gradient, DTensor) else gradient


def add_up(tensors: Sequence[Tensor], group: dist.ProcessGroup, meter: Meter) -> None:
    """Over the ranks of a group, in place: in one call, and one for each that is large."""
    small = [x for x in tensors if x.nbytes < LARGE_BYTES]
    for x in tensors:
        if x.nbytes >= LARGE_BYTES:
            all_reduce(x, group, meter)
    if sum(x.numel() for x in small):
        together = torch.cat([x.flatten() for x in small])
        all_reduce(together, group, meter)
        for x, part in zip(small, torch.split(together, [x.numel() for x in small]), strict=True):
            x.copy_(part.view_as(x))


def all_reduce(x: Tensor, group: dist.ProcessGroup, meter: Meter) -> None:
    ranks = dist.get_world_size(group)
    with meter.measure(x.device, 2 * x.nbytes * (ranks - 1) // ranks):
        dist.all_reduce(x, group=group)
