"""How long each rank is busy in a step with what was assigned so far, and what it idles in a pipeline meanwhile.

In 1F1B the ranks of stage s wait for s forwards ahead of their first pass, and for s backwards of the others behind
their last (PipeDream-Flush, arXiv 2006.09503): work of encoders there makes the step no longer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.costs import Floats, Pricing
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks
from planner.specs.hardware.profile import BACKWARD_SHARE, FORWARD_SHARE
from planner.specs.parallelism import ZERO_BUBBLE


class RankLoads:
    """Seconds by rank, of the step or of each micro-batch: (…, ranks)."""

    def __init__(self, seconds: Floats) -> None:
        self.seconds = seconds.copy()

    def of_replicas(self, replicas: Sequence[Ranks]) -> Floats:
        """(…, replicas) what the busiest rank of each has."""
        return np.stack([self.seconds[..., list(ranks)].max(axis=-1) for ranks in replicas], axis=-1)

    def add(self, replicas: Sequence[Ranks], seconds: Floats) -> None:
        """Add seconds, (micro-batches, replicas), to every rank of each replica."""
        more = seconds.sum(axis=0) if self.seconds.ndim == 1 else seconds
        for number, ranks in enumerate(replicas):
            self.seconds[..., list(ranks)] += more[..., number, None]


@dataclass(frozen=True, slots=True)
class PipelineLoads:
    """Of each rank: seconds of passes, and of waiting ahead of the first forward and behind the last backward."""

    busy: Floats
    warm_up: Floats
    drain: Floats


def pipeline_loads(
    replicas: Sequence[Ranks], layout: Layout, shares: Floats, seconds: Floats, size: int
) -> PipelineLoads:
    """The loads of `size` ranks. `shares`: (stages,) of the module's work; `seconds`: (replicas, micro-batches) of both
    passes of the whole module.
    """
    found = PipelineLoads(np.zeros(size), np.zeros(size), np.zeros(size))
    behind = 0.0 if layout.schedule in ZERO_BUBBLE else BACKWARD_SHARE  # gradients of weights fill the drain
    for stage, own in enumerate(ranks_by_stage(replicas, layout)):
        for ranks, passes in zip(own, seconds * shares.max() / layout.vpp, strict=True):
            found.warm_up[ranks] = FORWARD_SHARE * passes[:stage].sum()
            found.drain[ranks] = behind * passes[len(passes) - stage :].sum()
        for ranks, whole in zip(own, seconds.sum(axis=1).tolist(), strict=True):
            found.busy[ranks] = whole * shares[stage]
    return found


def ranks_by_stage(replicas: Sequence[Ranks], layout: Layout) -> Iterator[list[list[int]]]:
    """Of each stage, the ranks of every replica."""
    for stage in range(layout.pp):
        held = {*stage_ranks(layout, stage)}
        yield [[rank for rank in ranks if rank in held] for ranks in replicas]


def stage_shares(pricing: Pricing, name: str, layout: Layout, ranks: Ranks, size: int) -> Floats:
    """(pipeline ranks,) of a module's work for an item of this size, what falls to each pipeline rank."""
    phases: tuple[Phase, ...] = ("F", "B")
    found = np.zeros(layout.pp)
    for number, layers in enumerate(layout.stages or (Layers(range(pricing.models[name].layers)),)):
        for phase in phases if layout.pp > 1 else ():
            task = Task(name, layers, phase, 0, "", ranks, (size,), (), layout.cp, ring=layout.default_split.ring)
            found[number % layout.pp] += pricing.price(task).value
    return found / found.sum() if found.any() else np.full(layout.pp, 1.0 / layout.pp)
