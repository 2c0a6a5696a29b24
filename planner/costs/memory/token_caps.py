"""What a rank holds without activations, and how many tokens of a micro-batch it can hold on top of that.

Model states are those of the stage's layers, so where the placement of experts differs among them, they are a mean of
what they would be if all layers had the placement of some. Of layers gathered one after the other, the largest counts.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import NamedTuple

from planner.costs.layout_columns import columns_of
from planner.costs.memory.allowed_memory import allowed_bytes, device_accounting
from planner.costs.memory.footprint import Footprint, footprint
from planner.plan.mesh.rank_mesh import has_experts
from planner.plan.plan_file import Layout
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.profile import Device
from planner.specs.job import Limits
from planner.specs.layers import Module

MOST_TOKENS = 2**40  # the limit where activations take next to nothing
BytesOf = Callable[[int], "ActivationBytes"]  # of so many tokens
LARGEST_FIELDS = ("gathered", "buffers")


class ActivationBytes(NamedTuple):
    """Bytes of some items' activations on each rank of a group: kept by layers from forward to backward; of the head,
    from logits to their gradient; and recomputed during one layer's backward, when the head's are freed.
    """

    layers: float
    head: float
    recomputed: float

    @property
    def recompute_extra(self) -> float:
        """Bytes that a backward holds on top of what forwards kept."""
        return max(0.0, self.recomputed - self.head)

    @property
    def peak(self) -> float:
        """Peak bytes of one micro-batch."""
        return self.layers + self.head + self.recompute_extra

    def times(self, tokens: int) -> "ActivationBytes":
        """Bytes of so many tokens, of this of one."""
        return ActivationBytes(*(tokens * each for each in self))


def idle_footprint(
    module: Module, layout: Layout, device: Device, accounting: MemoryCoefficients, stage: int, ranks: int | None = None
) -> Footprint:
    """What a rank of a stage holds however few tokens it has; `ranks`: with so many, and as many more replicas."""
    at = replace(columns_of(layout), ranks=len(layout.ranks) if ranks is None else ranks)
    return footprint(module, at, device_accounting(device, accounting), stage).without_activations


def activation_bytes_left(
    module: Module,
    layout: Layout,
    device: Device,
    limits: Limits,
    accounting: MemoryCoefficients,
    ranks: int | None = None,
) -> float:
    """Bytes left for activations on the ranks of the fullest stage; below 0 where the states do not fit. `ranks`: as in
    `idle_footprint`.
    """
    most, share = allowed_bytes(device, limits, accounting), 1.0 + device_accounting(device, accounting).fragmentation
    stages = (idle_footprint(module, layout, device, accounting, stage, ranks) for stage in range(layout.pp))
    return min(
        -1.0
        if float(each.total) > most
        else (most - float(each.outside_allocator)) / share - float(each.besides_activations)
        for each in stages
    )


def token_cap(
    module: Module,
    held: BytesOf,
    layout: Layout,
    device: Device,
    limits: Limits,
    accounting: MemoryCoefficients,
) -> int:
    """Tokens of a micro-batch that one rank can hold, or the job's own limit; may be ≤ 0.

    `held`: of so many tokens, on one rank.
    """
    if limits.tokens_per_rank is not None:
        return limits.tokens_per_rank
    available = activation_bytes_left(module, layout, device, limits, accounting)
    if held(1).peak > available:
        return int(available // held(1).peak)
    return bisect_right(range(1, MOST_TOKENS + 1), available, key=lambda tokens: held(tokens).peak)


def resident_footprint(module: Module, layout: Layout, accounting: MemoryCoefficients, stage: int) -> Footprint:
    """The footprint of a rank of a stage without activations. Stages count from 0 to pp − 1."""
    parts = [
        (share, footprint(module, replace(columns_of(at), seq=0.0), accounting, stage))
        for at, share in stage_placements(module, layout, stage)
    ]
    return parts[0][1] if len(parts) == 1 else mean_footprint(parts).fragmented(accounting.fragmentation)


def stage_placements(module: Module, layout: Layout, stage: int) -> list[tuple[Layout, float]]:
    """The placements of experts on a stage, each with its share of the MoE layers there."""
    if not layout.experts:
        return [(layout, 1.0)]
    layers = chain.from_iterable(layout.stages[stage :: layout.pp]) if layout.stages else range(module.layers)
    placed = layout.by_expert_placement(layer for layer in layers if has_experts(module, layer))
    total = sum(len(own) for _, own in placed)
    return [(at, len(own) / total) for at, own in placed] or [
        (layout.with_expert_placement(layout.expert_placement), 1.0)
    ]


def mean_footprint(parts: Sequence[tuple[float, Footprint]]) -> Footprint:
    """Bytes of each kind, by their shares; the largest of what one layer at a time has, and of communicators."""

    def combined(name: str) -> float:
        if name in LARGEST_FIELDS:
            return max(float(getattr(part, name)) for _, part in parts)
        return sum(share * float(getattr(part, name)) for share, part in parts)

    return Footprint(**{field.name: combined(field.name) for field in fields(Footprint)})
