"""Bytes on the fullest stage of a million layouts at once, whatever share of its layers is recomputed in full.

The footprint of a stage (costs/memory/footprint.py) is that of its states, which layouts with the same mesh have in
common, and that of its activations, which those with the same shards and micro-batch have in common. Both are evaluated
once for each that is distinct. Between no layer and all, what a stage keeps falls in a straight line with the layers
that it recomputes in full; from the first one on, backward holds one of them whole. What is offloaded to the host of
what is between the first layer of a chunk and its last falls with it (costs/memory/pipeline_activations.py). Moments of
the optimizer in host memory are missing throughout.

A stage with the same layers as one in front of it holds no more: it has no more micro-batches in flight, and neither
embedding nor logits. So where layers divide evenly only the first stage and the last are looked at.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.distinct_columns import LAYER_FIELDS, Indices, distinct_columns, layout_count
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.memory.footprint import (
    STATE_FIELDS,
    candidate_stages,
    footprint_of_states,
    loss_bytes,
    stage_at,
    token_bytes,
    token_part_bytes,
)
from planner.costs.memory.model_states import moment_bytes, stage_layers
from planner.costs.memory.pipeline_activations import fewest_recomputed, most_in_flight, offloadable_bytes
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts
from planner.specs.parallelism import RecomputedPart

Counts = NDArray[np.int64]  # layers of a stage, (kinds, meshes)
Floats = NDArray[np.float64]


class StageBytes(NamedTuple):
    """Bytes on a stage of some layouts, (layouts,) each."""

    layouts: Indices
    layers: Floats
    chunks: Floats
    states: Floats  # allocated besides activations and logits, while passes run
    update: Floats  # allocated in the optimizer's step
    outside: Floats  # outside of the allocator
    moments: Floats  # of states, what may be in host memory
    kept: Floats  # by all micro-batches in flight, with no layer recomputed in full
    least_kept: Floats  # with all of them
    movable: Floats  # of what is kept with no layer in full, what may be offloaded
    least_movable: Floats  # the same with all of them
    backward: Floats  # of logits, or of what a layer's backward recomputes, whichever is more
    full_backward: Floats  # the same where that layer is recomputed in full
    parts: Floats  # of what is kept, each kind of activations that was asked for, (kinds, layouts)

    def total(
        self, share: Floats, fragmentation: float, offload: Number = 0.0, optimizer_offload: Number = 0.0
    ) -> Floats:
        """Bytes where these shares of the layers are recomputed in full, and of the activations and the optimizer's
        moments offloaded.
        """
        kept = self.kept * (1.0 - share) + self.least_kept * share
        if np.any(offload):
            kept = kept - offload * self.offloadable(share)
        passes = self.states + kept + np.where(share > 0.0, self.full_backward, self.backward)
        allocated = np.maximum(passes, self.update) - optimizer_offload * self.moments
        return np.asarray(allocated * (1.0 + fragmentation) + self.outside)

    def offloadable(self, share: Number) -> Floats:
        """Bytes of activations that may be offloaded, where this share of the layers is recomputed in full."""
        each = offloadable_bytes(self.movable, self.least_movable, self.layers, self.chunks, share * self.layers)
        return np.asarray(each)

    def offloadable_parts(self, share: Number) -> Floats:
        """`offloadable` of each kind of activations that was asked for, (kinds, layouts)."""
        none, recomputed = np.zeros_like(self.parts), share * self.layers
        return np.asarray(offloadable_bytes(self.parts, none, self.layers, self.chunks, recomputed))

    def naming(self, chosen: NDArray[np.bool_]) -> "StageBytes":
        """The stages of layouts that name these of the kinds of activations to be offloaded, (kinds, layouts)."""
        movable = (self.parts * chosen[:, self.layouts]).sum(axis=0)
        return self._replace(movable=movable, least_movable=np.zeros_like(movable))

    def room(self, allowed: float, fragmentation: float) -> Floats:
        """Bytes that may be allocated."""
        return (allowed - self.outside) / (1.0 + fragmentation)

    def fits_kept(self, allowed: float, fragmentation: float, offload: Number = 0.0) -> NDArray[np.bool_]:
        """Whether the stage fits with no layer recomputed in full."""
        return np.asarray(self.total(np.zeros(self.kept.shape), fragmentation, offload) <= allowed)

    def least_share(self, allowed: float, fragmentation: float, offload: Number = 0.0) -> Floats:
        """The least share, a whole number of layers but not 0, so that the stage fits; 1 where none is enough."""
        room, layers = self.room(allowed, fragmentation), np.maximum(1.0, self.layers)
        beyond = self.states + self.kept + self.full_backward - room
        offloads = bool(np.any(offload))
        if offloads:
            beyond = beyond - offload * self.offloadable(0.0)
        saved = np.maximum(self.kept - self.least_kept, 1e-9)
        count = beyond / saved * layers
        moved = offload * (self.movable - self.least_movable) / saved if offloads else 0.0  # of what a layer saves
        count = np.ceil(fewest_recomputed(count, layers, self.chunks, moved) if offloads else count)
        return np.asarray(np.where(self.update > room, layers, np.clip(count, 1.0, layers)) / layers)

    def least_offload(self, allowed: float, fragmentation: float, share: Floats) -> Floats:
        """The least share of activations to offload so that the stage fits, where this share of the layers is
        recomputed in full; above 1 where none is enough.
        """
        return self.beyond(allowed, fragmentation, share) / np.maximum(self.offloadable(share), 1e-9)

    def beyond(self, allowed: float, fragmentation: float, share: Floats) -> Floats:
        """Bytes to offload so that the stage fits, where this share of the layers is recomputed in full; infinite where
        the optimizer's step does not.
        """
        room = self.room(allowed, fragmentation)
        beyond = self.states + self.kept * (1.0 - share) + self.least_kept * share - room
        beyond = beyond + np.where(share > 0.0, self.full_backward, self.backward)
        return np.where(self.update > room, np.inf, np.maximum(0.0, beyond))

    def least_optimizer_offload(
        self, allowed: float, fragmentation: float, share: Floats, offload: Number = 0.0
    ) -> Floats:
        """The least share of the optimizer's moments to offload so that the stage fits, beside these shares of layers
        recomputed in full and of activations offloaded; above 1 where none is enough.
        """
        beyond = self.total(share, fragmentation, offload) - allowed
        return np.maximum(0.0, beyond / (1.0 + fragmentation) / np.maximum(self.moments, 1e-9))

    def with_moments_offloaded(self, share: Floats) -> "StageBytes":
        """The bytes of these stages with these shares of the optimizer's moments in host memory."""
        stay = 1.0 - share
        states, update = (each - share * self.moments for each in (self.states, self.update))
        return self._replace(states=states, update=update, moments=stay * self.moments)

    def among(self, chosen: NDArray[np.bool_]) -> "StageBytes":
        """The bytes of some of the layouts, which are counted anew. `chosen`: (layouts,) of all."""
        here, places = chosen[self.layouts], np.cumsum(chosen) - 1
        return StageBytes(places[self.layouts[here]], *(part[..., here] for part in self[1:]))


class LayerBytes(NamedTuple):
    """Bytes of one micro-batch in a layer of each kind, by distinct shards, (kinds, shards) each: kept, with nothing
    recomputed in full and with all; of these, what may be offloaded, and what is held in its backward, likewise.
    """

    kept: Floats
    least_kept: Floats
    movable: Floats
    least_movable: Floats
    backward: Floats
    full_backward: Floats


def stages_bytes(
    module: Module,
    at: LayoutColumns,
    accounting: MemoryCoefficients,
    parts: Sequence[RecomputedPart] = (),
) -> Iterator[StageBytes]:
    """The stages of which one is the fullest, each with the layouts in which it may be; `parts`: kinds of activations
    that are asked for by themselves.
    """
    meshes, of_mesh = distinct_places(at, STATE_FIELDS)
    shards, of_shards = distinct_places(at, LAYER_FIELDS)
    each, batches = layer_bytes(module, shards, accounting), np.broadcast_to(at.micro_batches, of_mesh.shape)
    by_part = layer_part_bytes(module, shards, accounting, parts)
    logits = held_logits(module, shards, accounting, of_shards, batches if at.schedule == "gpipe" else None)
    earlier: list[Counts] = []
    for stage in candidate_stages(module, meshes):
        number = stage_at(meshes, stage)
        counts = np.array(np.broadcast_arrays(*stage_layers(module, meshes, number).values()))
        (layouts,) = np.nonzero(may_be_fullest(meshes, stage, counts, earlier)[of_mesh])
        earlier.append(counts)
        mesh, shard, many = of_mesh[layouts], of_shards[layouts], batches[layouts]
        held = [count[mesh] for count in counts]
        most = np.broadcast_to(most_in_flight(meshes, number), counts[0].shape)
        layers, chunks = np.asarray(sum(held)), np.broadcast_to(at.vpp, of_mesh.shape)[layouts]
        flying = np.minimum(many, most[mesh])
        ends = logits[layouts] if stage < 0 else np.zeros(len(layouts))
        states, update, outside, moments = (part[mesh] for part in state_bytes(module, meshes, accounting, stage))
        yield StageBytes(
            layouts,
            layers,
            chunks,
            states,
            update,
            outside,
            moments,
            flying * added(held, each.kept, shard),
            flying * added(held, each.least_kept, shard),
            flying * added(held, each.movable, shard),
            flying * added(held, each.least_movable, shard),
            largest(ends, held, each.backward, shard),
            largest(ends, held, each.full_backward, shard),
            np.array([flying * added(held, part, shard) for part in by_part]).reshape(len(by_part), len(layouts)),
        )


def distinct_places(at: LayoutColumns, names: tuple[str, ...]) -> tuple[LayoutColumns, Indices]:
    """The layouts that differ in these fields, and the place of each layout among them."""
    few, places = distinct_columns(at, names)
    return few, np.arange(layout_count(at)) if places is None else places


def may_be_fullest(at: LayoutColumns, stage: int, counts: Counts, earlier: list[Counts]) -> NDArray[np.bool_]:
    """Whether a stage may be the fullest: it is the last, or another with other layers than those in front of it."""
    last = np.broadcast_to(np.asarray(at.pp) - 1, counts[0].shape)
    if stage < 0:
        return np.ones(last.shape, dtype=np.bool_)
    alike = [(counts == other).all(axis=0) for other in earlier]
    return np.asarray((stage < last) & ~np.any([np.zeros_like(last, dtype=np.bool_), *alike], axis=0))


def layer_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients) -> LayerBytes:
    """Bytes of layers, in the order of the module's kinds."""
    found: list[tuple[Floats, ...]] = []
    for kind in kind_counts(module):
        one = token_bytes(module, kind, at, accounting)
        again = [one.without_recompute - each for each in (one.with_recompute, one.input_only)]
        held = [each + np.where(each > 0, one.gathered_input, 0.0) for each in again]
        moved = (one.offloadable, one.least_offloadable)
        found.append(tuple(at.tokens * each for each in (one.with_recompute, one.input_only, *moved, *held)))
    shape = np.broadcast_shapes(*(np.shape(part) for one in found for part in one), (1,))
    return LayerBytes(*(np.array([np.broadcast_to(one[part], shape) for one in found]) for part in range(6)))


def layer_part_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, parts: Sequence[RecomputedPart]
) -> Floats:
    """Bytes of one micro-batch of each of these kinds of activations in layers, (parts, kinds of layers, shards)."""
    each = [token_part_bytes(module, kind, at, accounting) for kind in kind_counts(module)] if parts else []
    found = [[at.tokens * np.asarray(one.get(part, 0.0)) for one in each] for part in parts]
    shape = np.broadcast_shapes(*(np.shape(size) for sizes in found for size in sizes), (1,))
    return np.array([[np.broadcast_to(size, shape) for size in sizes] for sizes in found])


def held_logits(
    module: Module, shards: LayoutColumns, accounting: MemoryCoefficients, of: Counts, batches: Counts | None
) -> Floats:
    """Bytes of the logits of one micro-batch, or of `batches` of them at once, (layouts,); of each layout `of` says
    which of the shards it has.
    """
    count = int(of.max(initial=0)) + 1

    def whole(kept: MemoryCoefficients) -> Floats:
        each = np.asarray(loss_bytes(module, shards, kept, shards.tokens), dtype=np.float64)
        return np.broadcast_to(np.atleast_1d(each), (count,))[of]

    if batches is None or not accounting.logits_at_once:
        return whole(accounting) * (1.0 if batches is None else batches)
    norms = batches * whole(with_fields(accounting, logit_bytes=0.0))
    logits = batches * whole(with_fields(accounting, logits_at_once=0.0)) - norms
    return norms + np.minimum(logits, accounting.logits_at_once * accounting.logit_bytes * shards.element / 2.0)


def state_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: int) -> list[Floats]:
    """Bytes that a rank without tokens has allocated during passes and in the optimizer's step, and outside; and of its
    states those of moments.
    """
    empty = footprint_of_states(at, module, accounting, stage)
    parts = (
        empty.besides_activations,
        empty.states + empty.update + empty.workspace,
        empty.outside_allocator,
        moment_bytes(module, at, accounting, stage_at(at, stage)),
    )
    return [*np.broadcast_arrays(*map(np.atleast_1d, parts))]


def added(held: list[Floats], each: Floats, shard: Indices) -> Floats:
    """Bytes of so many layers of each kind."""
    return np.asarray(sum(count * one[shard] for count, one in zip(held, each, strict=True)))


def largest(ends: Floats, held: list[Floats], each: Floats, shard: Indices) -> Floats:
    """Bytes of the logits or of the kind of layer that has most, of those that are there."""
    for count, one in zip(held, each, strict=True):
        ends = np.maximum(ends, np.where(count > 0, one[shard], 0.0))
    return ends
