"""The norm of all gradients of a step, over every module and rank, and gradients made smaller where it is too large.

Each number counts once: by the first of the ranks that hold the same of it, as replicas do, and the ranks of a tensor
block with a parameter that is whole on all of them, and both ends of a pipeline with a tied table. Gradients must be
summed over their ranks before.
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planner.errors import RunFailed
from planner.runtime.local import Local
from planner.runtime.settle import EMBEDDING, ends, ties
from planner.runtime.stage import Stage

TINY = 1e-6  # added to the norm before it divides, as torch does


@dataclass(frozen=True, slots=True)
class Clipped:
    """What a step's gradients came to."""

    norm: float  # before they were made smaller
    scale: float = 1.0  # what they were multiplied with

    def require_finite(self, step: int) -> None:
        """Raises RunFailed, on every rank alike: an update by such gradients leaves no weight a number."""
        if not math.isfinite(self.norm):
            raise RunFailed(
                f"the norm of gradients is {self.norm} in step {step}",
                where=f"step {step}",
                fix="lower the learning rate, give more steps of warm-up, or look at the items of this step",
            )


class Norm:
    """One rank's part of it. Every rank has one, or none has."""

    def __init__(self, local: Local, clip: float | None) -> None:
        self.local, self.clip = local, clip
        self.shards = [shard for stage in local.all_stages for shard in stage.shards.values()]
        self.counted = [shard for stage in local.all_stages for shard in counted(stage)]

    @torch.no_grad()
    def settle(self) -> Clipped:
        """Once a step, between the last reduction of gradients and the first update, on every rank of the world."""
        for module in self.local.stages:
            self.local.settle(module)
        norm = self.measure()
        scale = 1.0 if self.clip is None else min(1.0, self.clip / (norm + TINY))
        own = gradients(self.shards)
        if own and scale < 1:
            torch._foreach_mul_(own, scale)
        return Clipped(norm, scale)

    def measure(self) -> float:
        """√ of the sum of squares, in float64. One sum over the world."""
        own = gradients(self.counted)
        norms = torch._foreach_norm(own) if own else [torch.zeros((), device=self.local.worker.device)]
        total = torch.stack([norm.double() for norm in norms]).square().sum()
        dist.all_reduce(total)
        return float(total.sqrt().item())


def gradients(shards: list[nn.Parameter]) -> list[Tensor]:
    """As this rank holds them, those that there are."""
    found = (shard.grad for shard in shards if shard.grad is not None)
    return [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in found]


def counted(stage: Stage) -> list[nn.Parameter]:
    """The shards for which this rank speaks."""
    return [shard for name, shard in stage.shards.items() if speaks(stage, name)]


def speaks(stage: Stage, name: str) -> bool:
    """Whether this rank is the first of those that hold the same shard."""
    layout, rank, expert = stage.layout, stage.clock.rank, name in stage.experts
    if name == EMBEDDING and ties(stage.spec, layout) and ends(layout, rank)[0] != rank:
        return False
    (_, replicas), place = stage.states_of(name), stage.place_of(name)
    dims = {"ep", "etp"} if expert else {"tp"}
    whole_over = dims - {split.over for split in stage.splits.get(name, ())}
    return replicas[0] == rank and all(place.get(dim, 0) == 0 for dim in whole_over)
