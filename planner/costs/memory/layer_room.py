"""Room for layers on each rank of pipelines, however many these have: bytes that are there without any, and by a layer.

Layers are counted as the kind that a module has most of. Where that cannot be told from what a stage holds in all,
because adapters are trained, some bytes are left out: none are too many.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.memory.footprint import STATE_FIELDS, footprint_of_states, logit_bytes, stage_at, token_bytes
from planner.costs.memory.model_states import (
    gathered_width,
    layer_state_bytes,
    moment_bytes,
    rank_embedding_head,
    rank_layer_parameters,
    stage_layers,
)
from planner.costs.memory.pipeline_activations import in_flight
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind

Floats = NDArray[np.float64]
Ends = tuple[Number, Number, Number]  # of the first rank of a pipeline, of one in between, of the last


class LayerRoom(NamedTuple):
    """Bytes of pipelines, (ranks of the longest, layouts) or (layouts,) each."""

    room: Floats  # by rank, for layers
    state: Floats  # of a layer's states
    moments: Floats  # of these, what may be in host memory
    moments_outside: Floats  # by rank, the same outside of layers


class LayerKept(NamedTuple):
    """Bytes of activations of pipelines, likewise."""

    flying: Floats  # by rank, micro-batches in flight at least
    kept: Floats  # by a layer, of each of them
    least_kept: Floats  # the same where all of it is recomputed
    ends: Floats  # by rank, of logits or of what a layer's backward recomputes


def usual_kind(module: Module) -> tuple[LayerKind, int]:
    """The kind of layer that a module has most of, and how many."""
    return max(kind_counts(module).items(), key=lambda each: each[1])


def layer_room(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, allowed: float) -> LayerRoom:
    """The room of pipelines."""
    told, rooms, moments = module.trained == "all", list[Number](), list[Number]()
    each = {kind: layer_state_bytes(module, kind, at, accounting) for kind in kind_counts(module)}
    stays = (np.asarray(at.zero) >= 3) & accounting.keeps_gathered  # the whole stage's parameters and their gradients
    usual = usual_kind(module)[0]
    whole = np.where(stays, gathered_width(at, accounting) * sum(rank_layer_parameters(module, usual, at)), 0.0)
    for stage in (0, 1, -1):
        found = on_distinct(at, STATE_FIELDS, footprint_of_states, module, accounting, stage)
        counts = stage_layers(module, at, stage_at(at, stage))
        inside, moved = (sum(counts[kind] * of[part] for kind, of in each.items()) for part in (0, 1))
        ends = rank_embedding_head(module, at, stage_at(at, stage))
        gathered = np.where(stays, gathered_width(at, accounting) * ends, found.gathered)
        besides = found.states - inside + gathered + found.workspace if told else found.workspace
        rooms.append((allowed - found.outside_allocator) / (1.0 + accounting.fragmentation) - besides)
        moments.append(moment_bytes(module, at, accounting, stage_at(at, stage)) - moved if told else 0.0)
    rank = ranks_of(at)
    return LayerRoom(
        by_rank(rank, at, (rooms[0], rooms[1], rooms[2])),
        (each[usual][0] + whole) * told + np.zeros(rank.shape[1]),
        each[usual][1] * told + np.zeros(rank.shape[1]),
        by_rank(rank, at, (moments[0], moments[1], moments[2])),
    )


def layer_kept(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, chunks: list[Number]) -> LayerKept:
    """The activations of pipelines, with each number of `chunks` that they may have: the least of any."""
    one = on_distinct(at, LAYER_FIELDS, lambda some: token_bytes(module, usual_kind(module)[0], some, accounting))
    rank, again = ranks_of(at), one.without_recompute - one.with_recompute
    again = at.tokens * (again + np.where(again > 0, one.gathered_input, 0.0))
    last = np.maximum(again, logit_bytes(module, at, accounting, -1))
    flying = [in_flight(replace(at, vpp=each), rank) for each in chunks]
    wide = np.zeros(rank.shape[1])
    return LayerKept(
        np.maximum(1e-9, np.minimum.reduce(np.broadcast_arrays(*flying, np.full(rank.shape, np.inf)))),
        at.tokens * one.with_recompute + wide,
        at.tokens * one.input_only + wide,
        by_rank(rank, at, (again, again, last)),
    )


def ranks_of(at: LayoutColumns) -> Floats:
    """Numbers of pipeline ranks, (ranks of the longest, layouts)."""
    shape = np.broadcast(at.tp, at.pp, at.zero).shape
    return np.broadcast_to(np.arange(float(np.max(at.pp)))[:, None], (int(np.max(at.pp)), *shape))


def by_rank(rank: Floats, at: LayoutColumns, ends: Ends) -> Floats:
    """What ranks have, of what the first one has, those in between, and the last."""
    first, between, last = ends
    return np.where(rank == np.asarray(at.pp) - 1.0, last, np.where(rank == 0.0, first, between))
