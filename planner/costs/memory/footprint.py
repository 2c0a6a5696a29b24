"""The peak memory of one rank of a stage under a static layout, by kind of use."""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from planner.costs.compute.layer_work import reading_columns
from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import NUMERIC_FIELDS, LayoutColumns, Number
from planner.costs.memory.activations import (
    element_shares,
    input_bytes,
    layer_activations,
    offloadable_part_bytes,
    part_bytes,
)
from planner.costs.memory.communicators import communicator_bytes
from planner.costs.memory.model_states import gathered_bytes, stage_layers, update_bytes, zero_state_bytes
from planner.costs.memory.pipeline_activations import in_flight, offloadable_bytes
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind, only_reads
from planner.specs.parallelism import RecomputedPart
from planner.units import GIB


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on one rank. The sum of all kinds is no peak: logits and the optimizer's step never coincide."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number  # parameters that ZeRO-3 gathers, and buckets of gradients
    activations: Number  # of all micro-batches in flight, and of one layer that is recomputed
    logits: Number  # and their gradient
    update: Number  # temporaries of the optimizer's step
    workspace: Number
    fragmentation: Number  # reserved by the allocator on top of what is allocated
    buffers: Number  # of communicators
    context: Number

    @property
    def states(self) -> Number:
        """Bytes of model states."""
        return self.weights + self.gradients + self.optimizer

    @property
    def besides_activations(self) -> Number:
        """Bytes allocated while passes run, other than their activations."""
        return self.states + self.gathered + self.workspace

    @property
    def outside_allocator(self) -> Number:
        """Bytes outside of the framework's allocator."""
        return self.buffers + self.context

    @property
    def without_activations(self) -> "Footprint":
        """The footprint of a rank without tokens."""
        return replace(self, activations=0.0, logits=0.0).fragmented(self.fragmentation / self.allocated)

    def sharing_ranks(self, other: "Footprint") -> "Footprint":
        """The footprint of two modules on one rank: what each takes, and what the process takes once."""
        own = {name: getattr(self, name) + getattr(other, name) for name in MODULE_FIELDS}
        return replace(self, **own).fragmented(self.fragmentation / self.allocated)

    def fragmented(self, share: Number) -> "Footprint":
        """The footprint with this share of the allocated bytes reserved but unusable."""
        return replace(self, fragmentation=share * self.allocated)

    @property
    def allocated(self) -> Number:
        """The framework's own peak: torch.cuda.max_memory_allocated."""
        working = np.maximum(self.gathered + self.activations + self.logits, self.update)
        return self.states + working + self.workspace

    @property
    def reserved(self) -> Number:
        """What the allocator holds: torch.cuda.max_memory_reserved."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> Number:
        """What the device has in use, as nvidia-smi shows it."""
        return self.reserved + self.outside_allocator


# Kinds of bytes that are a module's own; the rest are the process's.
MODULE_FIELDS = ("weights", "gradients", "optimizer", "gathered", "activations", "logits", "update")


# What states, and the layers of a stage, depend on.
STATE_FIELDS = ("ranks", "tp", "cp", "pp", "vpp", "ep", "etp", "replica", "zero", "optimizer_offload")
STAGE_FIELDS = ("pp", "vpp")


def footprint(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> Footprint:
    """The peak footprint of one rank of a stage, counted from 0 to pp − 1, or from −1 back to −pp."""
    kept, recomputed = activation_bytes(module, at, accounting, stage)
    logits = logit_bytes(module, at, accounting, stage)
    parts = on_distinct(at, STATE_FIELDS, footprint_of_states, module, accounting, stage)
    return replace(parts, activations=kept + np.maximum(0.0, recomputed - logits), logits=logits).fragmented(
        accounting.fragmentation
    )


def footprint_of_states(at: LayoutColumns, module: Module, accounting: MemoryCoefficients, stage: Number) -> Footprint:
    """The footprint of a rank that has no tokens."""
    stage = stage_at(at, stage)
    return Footprint(
        *zero_state_bytes(module, at, accounting, stage),
        gathered=gathered_bytes(module, at, accounting, stage),
        activations=0.0,
        logits=0.0,
        update=update_bytes(module, at, accounting, stage),
        workspace=accounting.workspace_gib * GIB,
        fragmentation=0.0,
        buffers=accounting.buffers * communicator_bytes(module, at),
        context=accounting.context_gib * GIB,
    )


def stage_at(at: LayoutColumns, stage: Number) -> Number:
    """A stage as a number from 0 to pp − 1: the last one where a pipeline has fewer, or counted from the end."""
    return np.clip(np.where(np.asarray(stage) < 0, at.pp + stage, stage), 0, np.asarray(at.pp) - 1)


def activation_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number
) -> tuple[Number, Number]:
    """Bytes kept by all micro-batches in flight; and recomputed for the backward of one layer, after the logits are
    freed.
    """
    kept: Number = 0.0
    recomputed: Number = 0.0
    held = on_distinct(at, STAGE_FIELDS, lambda some: stage_layers(module, some, stage_at(some, stage)))
    for kind, count in held.items():
        own, extra = layer_token_bytes(module, kind, at, accounting)
        kept, recomputed = kept + count * own, np.maximum(recomputed, np.where(count > 0, extra, 0.0))
    if np.any(at.offload):
        each = [(count, known_token_bytes(module, kind, at, accounting)) for kind, count in held.items()]
        moved = (sum(count * own.offloadable for count, own in each), sum(n * own.least_offloadable for n, own in each))
        layers = sum(held.values())
        kept = kept - at.offload * offloadable_bytes(*moved, layers, at.vpp, layers * np.asarray(at.full_recompute))
    return in_flight(at, stage_at(at, stage)) * at.tokens * kept, at.tokens * recomputed


def layer_token_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients
) -> tuple[Number, Number]:
    """Bytes per token of one layer: kept until its backward; and recomputed there, with its gathered input."""
    each = known_token_bytes(module, kind, at, accounting)
    full = np.asarray(at.full_recompute)
    kept = full * each.input_only + (1.0 - full) * each.with_recompute
    recomputed = each.without_recompute - np.where(full > 0, each.input_only, each.with_recompute)
    return kept, recomputed + np.where(recomputed > 0, each.gathered_input, 0.0)


def known_token_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients
) -> "TokenBytes":
    """`token_bytes`, once for every distinct layer."""
    found: TokenBytes = on_distinct(at, LAYER_FIELDS, lambda some: token_bytes(module, kind, some, accounting))
    return found


class TokenBytes(NamedTuple):
    """Bytes per token that one layer keeps: all of its activations, those that it does not recompute in part, its
    input; its gathered input with the gradient; and what it may offload, recomputed in part and in full.
    """

    without_recompute: Number
    with_recompute: Number
    input_only: Number
    gathered_input: Number
    offloadable: Number
    least_offloadable: Number


def token_bytes(module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients) -> TokenBytes:
    """Bytes per token of one layer by what is recomputed of it: per token of all sequences, also where the layer works
    on those only that read something.
    """
    own, share = reading_columns(kind, at), at.readers if only_reads(kind) else 1.0
    each = layer_activations(module, kind, own, accounting)
    inputs = input_bytes(module, own)
    moved = offloadable_part_bytes(module, kind, own, accounting, each.with_recompute)
    least = np.where(np.asarray(at.offloaded_parts) > 0, 0.0, inputs)  # a list of kinds names no input that is kept
    kept = (*each[::-1], inputs, gathered_input_bytes(module, at), moved, least)
    return TokenBytes(*(size * share for size in kept))


def token_part_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients
) -> dict[RecomputedPart, Number]:
    """Bytes per token of one layer that it may offload, as `part_bytes` has them, per token of all sequences."""
    own, share = reading_columns(kind, at), at.readers if only_reads(kind) else 1.0
    return {part: size * share for part, size in part_bytes(module, kind, own, accounting).items()}


def logit_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> Number:
    """Bytes of micro-batches between their loss and its backward, on the last stage: one, or under GPipe all of
    them.
    """
    held = at.micro_batches if at.schedule == "gpipe" else 1.0
    return np.where(stage_at(at, stage) == at.pp - 1, loss_bytes(module, at, accounting, held * at.tokens), 0.0)


def loss_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, tokens: Number) -> Number:
    """Bytes of the logits of `tokens` tokens, or of one chunk of them; and of the final norm with its output."""
    if not module.output_vocabulary:
        return 0.0 * tokens
    shares = element_shares(at)
    tokens = tokens * module.predicted_tokens
    logits = module.output_vocabulary * shares.inside * tokens
    if accounting.logits_at_once:
        logits = np.minimum(logits, accounting.logits_at_once)
    norm = 2 * module.hidden * shares.plain * shares.outside + gathered_input_bytes(module, at)
    return logits * accounting.logit_bytes * at.element / 2.0 + norm * tokens


def gathered_input_bytes(module: Module, at: LayoutColumns) -> Number:
    """Bytes per token of a product's input and its gradient, unsharded, where sequence parallelism shards the
    residual.
    """
    shares = element_shares(at)
    return np.where(shares.outside < 1.0, 2 * module.hidden * shares.plain, 0.0)


def fullest_stage(module: Module, at: LayoutColumns, accounting: MemoryCoefficients) -> Footprint:
    """The footprint of the fullest stage."""
    *first, last = candidate_stages(module, at)
    stages = first if len(first) == int(np.max(at.pp)) else [*first, last]  # of few stages the last is among the first
    if not any(np.ndim(getattr(at, name)) for name in NUMERIC_FIELDS):
        return fullest_of_stages(footprint(module, at, accounting, np.array(stages)), len(stages))
    fullest, *others = (footprint(module, at, accounting, stage) for stage in stages)
    for each in others:
        fullest = larger_footprint(fullest, each)
    return fullest


def fullest_of_stages(each: Footprint, stages: int) -> Footprint:
    """The footprint with the largest total, the first of equals, of one layout's stages as arrays."""
    at = int(np.argmax(np.broadcast_to(each.total, stages)))
    parts = {field.name: np.broadcast_to(getattr(each, field.name), stages)[at] for field in fields(Footprint)}
    return Footprint(**parts)


def candidate_stages(module: Module, at: LayoutColumns) -> list[int]:
    """Stages of which one is the fullest: the first three, which have most micro-batches in flight, or the last (−1),
    which has the logits. Where layers differ in kind it may be any: the first eight and the last are looked at here,
    and all of them when a plan is simulated. Where a layout says its stages, all of them are.
    """
    if at.cuts:
        return [*range(int(np.max(at.pp)) - 1), -1]
    return [*range(min(int(np.max(at.pp)), 8 if len(kind_counts(module)) > 1 else 3)), -1]


def layers_on_stage(module: Module, at: LayoutColumns, stage: Number) -> Number:
    """Layers of a stage, counted as in `footprint`."""
    held = on_distinct(at, STAGE_FIELDS, lambda some: stage_layers(module, some, stage_at(some, stage)))
    return sum(held.values())


def larger_footprint(one: Footprint, other: Footprint) -> Footprint:
    """The footprint with the larger total, element by element."""
    second_larger = np.asarray(other.total > one.total)
    parts = {field.name: (getattr(one, field.name), getattr(other, field.name)) for field in fields(Footprint)}
    return Footprint(**{name: np.where(second_larger, second, first) for name, (first, second) in parts.items()})
