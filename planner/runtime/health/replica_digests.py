"""Replicas hold the same bits: checksums of what several ranks hold alike, compared among these.

Weights and Adam's moments are held alike by the replicas of a shard (ZeRO-0, HSDP), by the ranks of a tensor-parallel
group where a parameter is not split over them, and by the two ends of a pipeline that tie the embedding. They receive
equal sums of gradients and do equal updates, so that one that differs has a bad device or memory, or a bug. A checksum
is the sum of a tensor's bit patterns as whole numbers, which any single flipped bit changes; ranks gather those of a
group, 8 bytes for each tensor, in one collective.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import RunFailed
from planner.launch.communication import barrier
from planner.models import held_values
from planner.plan.mesh.rank_mesh import groups_over
from planner.runtime.execute.task_executor import TaskExecutor
from planner.runtime.state.replicated_gradients import (
    EMBEDDING,
    embedding_head_ranks,
    replicated_names,
    ties_across_stages,
)
from planner.runtime.state.sharded_stage import ShardedStage
from planner.specs.base import Ranks

PATTERNS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}  # by bytes of an element
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True)
class Difference:
    """Ranks of a group that differ from the others; all of them where there is no majority."""

    group: Ranks
    odd: Ranks
    name: str  # of the first tensor that differs


def require_equal_replicas(executor: TaskExecutor, step: int) -> None:
    """Every rank calls it. Raises RunFailed on a rank that differs, naming all that do; the others wait to be ended."""
    worker = executor.worker
    worker.begin_task("comparison of replicas", step)
    tables = executor.local.tables
    alike = held_alike(executor) | (tables.copies_after(step) if tables else {})
    compared = [compare(executor, group, held) for group, held in sorted(alike.items())]
    found = [difference for difference in compared if difference]
    for each in found:
        if worker.rank == each.odd[0]:
            raise difference_error(each, step)
    if found:
        barrier()  # until the rank that differs has failed, and ended this one


def difference_error(found: Difference, step: int) -> RunFailed:
    others = Ranks(rank for rank in found.group if rank not in found.odd)
    which = f"of ranks {found.group}, {found.odd} differ from the others" if others else f"ranks {found.group} differ"
    return RunFailed(
        f"replicas are not equal after step {step}: {which} in {found.name}",
        where=f"step {step}",
        fix="suspect the memory or device of that rank; resume without it from the last checkpoint, which was compared",
    )


def held_alike(executor: TaskExecutor) -> dict[Ranks, dict[str, Tensor]]:
    """By group of ranks, what they hold alike, in the same order on all of them."""
    held: dict[Ranks, dict[str, Tensor]] = {}
    for module, stages in executor.local.stages.items():
        for stage in stages:
            for name in sorted(stage.shards):
                for group in alike(stage, name):
                    held.setdefault(group, {}).update(states(executor, module, stage, name))
    return held


def alike(stage: ShardedStage, name: str) -> Iterator[Ranks]:
    """The groups of ranks that hold this rank's shard of a parameter too, in one way each."""
    layout, rank = stage.layout, stage.clock.rank
    groups = [stage.state_ranks(name)[1]]
    if name in replicated_names(stage):
        groups.append(groups_over(layout, ("tp",))[rank])
    if name == EMBEDDING and ties_across_stages(stage.spec, layout):
        groups.append(embedding_head_ranks(layout, rank))
    return (group for group in groups if len(group) > 1)


def states(executor: TaskExecutor, module: str, stage: ShardedStage, name: str) -> dict[str, Tensor]:
    """This rank's shard of a parameter and of its moments, by what they are called in errors."""
    shard = stage.shards[name]
    optimizer = executor.optimizers.get(module)
    of_shard = optimizer.state.get(shard, {}) if optimizer else {}
    found = {f"{module}.{name}": shard.detach()}
    return found | {f"{module}.{name} ({kind})": of_shard[kind] for kind in MOMENTS if kind in of_shard}


@torch.no_grad()
def compare(executor: TaskExecutor, group: Ranks, held: dict[str, Tensor]) -> Difference | None:
    """Compares checksums within a group, of which every rank calls it."""
    own = torch.stack([checksum(tensor) for tensor in held.values()])
    gathered = [torch.empty_like(own) for _ in group]
    dist.all_gather(gathered, own, group=executor.local.groups[group])
    return first_difference(group, [*held], torch.stack(gathered).cpu())


def first_difference(group: Ranks, names: list[str], checksums: Tensor) -> Difference | None:
    """The first tensor whose `checksums`, (rank of the group, tensor), are not all equal, and who differs from most."""
    usual = checksums.mode(dim=0).values
    differs = checksums != usual
    if not differs.any():
        return None
    column = int(differs.any(dim=0).nonzero()[0])
    odd = [rank for rank, other in zip(group, differs[:, column].tolist(), strict=True) if other]
    return Difference(group, Ranks(odd) if 2 * len(odd) < len(group) else group, names[column])


def checksum(tensor: Tensor) -> Tensor:
    """The sum of the bit patterns of this rank's part of a tensor (any shape), int64, modulo 2^64."""
    local = held_values(tensor)
    return local.contiguous().view(PATTERNS[local.element_size()]).sum(dtype=torch.int64)
