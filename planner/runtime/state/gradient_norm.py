"""The global gradient norm of a step, over every module and rank, and clipping by it.

Each gradient counts once, on the first of the ranks that have it: of replicas, of the ranks of a tp group for
replicated parameters, of the first and last pipeline stage for a tied embedding. Gradients must have been summed over
their ranks.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.models import held_values
from planner.runtime.state.rank_state import RankState
from planner.runtime.state.replicated_gradients import EMBEDDING, embedding_head_ranks, ties_across_stages
from planner.runtime.state.sharded_stage import ShardedStage

NORM_EPSILON = 1e-6  # added to the norm before dividing, as torch does


@dataclass(frozen=True, slots=True)
class GradientClipping:
    """Norm of a step's gradients, and how they were clipped."""

    norm: float  # before clipping
    scale: float = 1.0  # factor by which gradients were multiplied


class GradientNorm:
    """One rank's part of the gradient norm. Every rank has one, or none has."""

    def __init__(self, local: RankState, clip: float | None) -> None:
        self.local, self.clip = local, clip
        self.shards = [shard for stage in local.all_stages for shard in stage.shards.values()]
        self.counted = [
            shard for stage in local.all_stages for name, shard in stage.shards.items() if counts_here(stage, name)
        ]

    @torch.no_grad()
    def clip_gradients(self) -> GradientClipping:
        """Computes the norm and clips gradients, on every rank between the last reduction and the first update."""
        for module in self.local.stages:
            self.local.complete_gradients(module)
        norm = self.measure()
        scale = 1.0 if self.clip is None else min(1.0, self.clip / (norm + NORM_EPSILON))
        own = gradients(self.shards)
        if own and scale < 1:
            torch._foreach_mul_(own, scale)
        return GradientClipping(norm, scale)

    def measure(self) -> float:
        """√ of the sum of squares, in float64. One all-reduce over all ranks."""
        own = gradients(self.counted)
        norms = torch._foreach_norm(own) if own else [torch.zeros((), device=self.local.worker.device)]
        total = torch.stack([norm.double() for norm in norms]).square().sum()
        dist.all_reduce(total)
        return float(total.sqrt().item())


def gradients(shards: list[nn.Parameter]) -> list[Tensor]:
    """Local gradients of these shards, of the shards' shapes; those that exist."""
    return [held_values(shard.grad) for shard in shards if shard.grad is not None]


def counts_here(stage: ShardedStage, name: str) -> bool:
    """Whether this rank is the first of those that hold the same shard."""
    layout, rank, expert = stage.layout, stage.clock.rank, name in stage.expert_parameters
    if name == EMBEDDING and ties_across_stages(stage.spec, layout) and embedding_head_ranks(layout, rank)[0] != rank:
        return False
    (_, replicas), coordinate = stage.state_ranks(name), stage.mesh_coordinates(name)
    dims = {"ep", "etp"} if expert else {"tp"}
    replicated_over = dims - {split.mesh_dim for split in stage.splits.get(name, ())}
    return replicas[0] == rank and all(coordinate.get(dim, 0) == 0 for dim in replicated_over)
