"""The memory that a rank of a stage holds without activations, averaged over placements of experts.

Model states are those of the stage's layers, so where the placement of experts differs among them, they are a mean of
what they would be if all layers had the placement of some. Of layers gathered one after the other, the largest counts.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain

from planner.costs.layout_columns import columns_of
from planner.costs.memory.footprint import Footprint, footprint
from planner.plan.mesh.rank_mesh import has_experts
from planner.plan.plan_file import Layout
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module

LARGEST_FIELDS = ("gathered", "buffers")


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
