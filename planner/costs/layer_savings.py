"""What recomputing parts takes in a layer and frees there, and how much can be offloaded: for any number of layouts.

The largest share of activations that can be offloaded so that its copies hide behind compute follows the rule of
costs/memory/offload.py: the shortest item computes for T(s)/s a token in the faster pass, and its activations take
A/B a token to the host. Here A is that of the kind of layer that keeps most, so that no chunk's mean hides less.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs.compute.expert_load import routed_work
from planner.costs.compute.layer_work import kinds_and_windows, layer_work
from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import LayoutColumns, Number, recompute_columns
from planner.costs.machine_model import MachineModel
from planner.costs.memory.footprint import token_bytes, token_part_bytes
from planner.costs.memory.offload import STEPS
from planner.costs.network.expert_dispatch import expert_seconds
from planner.costs.network.layer_traffic import LayerGroups, tensor_seconds
from planner.costs.network_model import strided_group
from planner.costs.step.stage_seconds import mean_layer_passes
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind
from planner.specs.parallelism import Recompute, RecomputedPart, sets_of_parts
from planner.units import GB

MANY_TOKENS = float(2**20)  # tokens of an item, the second point of a straight line
ROUNDING = 1e-9  # relative: the same rule in another order of its sums


class FreedBytes(NamedTuple):
    """What layers do not keep of one micro-batch, (layouts,) each."""

    share: Number  # of their activations, over all layers
    most: Number  # the same of the kind of layer of which it is most
    held: Number  # bytes per token that backward holds of a layer that it recomputes, at most


def freed_bytes(module: Module, how: Recompute, at: LayoutColumns, accounting: MemoryCoefficients) -> FreedBytes:
    """What layers free that recompute this."""
    full, parts = recompute_columns(how)

    def freed(some: LayoutColumns) -> FreedBytes:
        kept: Number = 0.0
        everything: Number = 0.0
        most: Number = 0.0
        held: Number = 0.0
        for kind, count in kind_counts(module).items():
            one = token_bytes(module, kind, some, accounting)
            own = one.input_only if full else one.with_recompute
            kept, everything = kept + count * own, everything + count * one.without_recompute
            less = one.without_recompute - own
            most = np.maximum(most, less / one.without_recompute)
            held = np.maximum(held, less + np.where(less > 0.0, one.gathered_input, 0.0))
        return FreedBytes(1.0 - kept / everything, most, held)

    return on_distinct(replace(at, recomputed_parts=parts), LAYER_FIELDS, freed)


def recompute_seconds_by(
    module: Module, hows: Sequence[Recompute], at: LayoutColumns, machine: MachineModel
) -> list[Number]:
    """Seconds in which a layer's backward recomputes each of these, in the mean of all layers, (layouts,) each. A set
    takes at least as long as its parts do one by one, and longer only where the host's launches hide some of them.
    """
    named = sorted({part for how in hows for part in recompute_columns(how)[1]})

    def seconds(some: LayoutColumns) -> tuple[Number, ...]:
        each = [mean_layer_passes(module, replace(some, recomputed_parts=frozenset({part})), machine) for part in named]
        forward = mean_layer_passes(module, replace(some, recomputed_parts=frozenset()), machine).forward.seconds
        return (*(np.maximum(0.0, one.partial.seconds - one.backward.seconds) for one in each), forward)

    *by_part, forward = on_distinct(at, LAYER_FIELDS, seconds)
    taken = dict(zip(named, by_part, strict=True))
    none = np.zeros_like(forward)
    full = [recompute_columns(how)[0] for how in hows]
    return [
        forward if whole else sum((taken[part] for part in recompute_columns(how)[1]), none)
        for how, whole in zip(hows, full, strict=True)
    ]


class LargestOffload(NamedTuple):
    """Largest shares, (layouts,) each, multiples of 1/STEPS; 0 where a chunk has no layer between two others."""

    partial: Number  # where none or some of the layers are recomputed in full
    full: Number  # where all of them are
    hidden: Number  # bytes of a token in one layer whose copies hide


def largest_offload(module: Module, at: LayoutColumns, machine: MachineModel, size: int) -> LargestOffload:
    """The shares of layouts whose shortest item has `size` tokens."""
    found: LargestOffload = on_distinct(at, LAYER_FIELDS, largest_of_layers, module, machine, size)
    chunks = np.asarray(at.pp * at.vpp)
    even = np.mod(module.layers, chunks) == 0
    with_ends = ~even & (np.mod(module.layers + 2, chunks) == 0)  # as costs/memory/model_states.py divides layers
    least = np.where(with_ends, (module.layers + 2) / chunks - 1.0, np.floor(module.layers / chunks))
    plain, hidden = (np.where(least > 2, each, 0.0) for each in (found.partial, found.hidden))
    return LargestOffload(plain, np.where(even & (least > 2), np.maximum(found.full, plain), plain), hidden)


def largest_of_layers(at: LayoutColumns, module: Module, machine: MachineModel, size: int) -> LargestOffload:
    """The largest shares in layers, wherever they are, of layouts that all differ in what layers depend on."""
    one = replace(at, cp=1.0, ulysses=1.0, micro_batch=1.0, seq=1.0, recomputed_parts=frozenset(), alike={})
    seconds = on_distinct(one, LAYER_FIELDS, quicker_pass_seconds, module, machine, size)
    each = [token_bytes(module, kind, at, machine.accounting) for kind in kind_counts(module)]
    sent = seconds * (machine.device.host_gb_per_s or 0.0) * GB * (1.0 - ROUNDING)

    def share(sizes: list[Number]) -> Number:
        return np.floor(np.minimum(1.0, sent / np.maximum.reduce(np.broadcast_arrays(*sizes))) * STEPS) / STEPS

    return LargestOffload(share([one.with_recompute for one in each]), share([one.input_only for one in each]), sent)


class NamedBytes(NamedTuple):
    """A set of kinds of activations, of a token in one layer, (layouts,) each."""

    most: Number  # bytes, in the kind of layer that has most of them
    mean: Number  # bytes, in the mean of all layers
    share: Number  # of what layers keep, in the mean of all
    largest: Number  # the same of the kind of layer of which it is most


def named_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, kinds: tuple[RecomputedPart, ...]
) -> tuple[NamedBytes, ...]:
    """Every set of these kinds that layouts may name to be offloaded, in the order of `sets_of_parts`."""
    found: tuple[NamedBytes, ...] = on_distinct(at, LAYER_FIELDS, named_of_layers, module, accounting, kinds)
    return found


def named_of_layers(
    at: LayoutColumns, module: Module, accounting: MemoryCoefficients, kinds: tuple[RecomputedPart, ...]
) -> tuple[NamedBytes, ...]:
    """The sets in layers, wherever they are, of layouts that all differ in what layers depend on."""
    counts = kind_counts(module)
    kept = np.array(np.broadcast_arrays(*(token_bytes(module, each, at, accounting).with_recompute for each in counts)))
    each = [token_part_bytes(module, kind, at, accounting) for kind in counts]
    by_part = {part: np.array([one.get(part, 0.0) + 0.0 * kept[0] for one in each]) for part in kinds}
    layers = np.array([*counts.values()]).reshape(-1, *np.ones(kept.ndim - 1, dtype=int))
    found = []
    for some in sets_of_parts(kinds):
        size = np.sum([by_part[part] for part in some], axis=0)
        mean, largest = (layers * size).sum(axis=0) / module.layers, (size / np.maximum(kept, ROUNDING)).max(axis=0)
        share = mean * module.layers / np.maximum((layers * kept).sum(axis=0), ROUNDING)
        found.append(NamedBytes(size.max(axis=0), mean, share, largest))
    return (*found,)


def quicker_pass_seconds(at: LayoutColumns, module: Module, machine: MachineModel, size: int) -> Number:
    """Seconds of the quicker pass over one layer for each token of an item; of several dispatches, with the one in
    which that is longest.
    """
    seconds: Number = 0.0
    for dispatch in at.dispatches:
        alike = replace(at, dispatch=dispatch)
        passes = [layer_token_seconds(module, alike, machine, size, forward) for forward in (True, False)]
        seconds = np.maximum(seconds, np.minimum(*passes))
    return seconds


def layer_token_seconds(module: Module, at: LayoutColumns, machine: MachineModel, size: int, forward: bool) -> Number:
    """Seconds of one pass over one layer for each token of an item, in the mean of all layers and without constants.
    Attention within windows does not count, as in `largest_ratio`.
    """
    seconds: Number = 0.0
    for kind, window, share in kinds_and_windows(module):
        some, none = (
            besides_attention(module, kind, replace(at, seq=tokens), machine, forward) for tokens in (MANY_TOKENS, 0.0)
        )
        core = layer_work(module, kind, replace(at, seq=float(size))).attention
        own = (some - none) / MANY_TOKENS
        if core is not None and window is None:
            attended = machine.attention_seconds(core, forward) - machine.attention_launch(core)
            own = own + attended / size
        seconds = seconds + own * share
    return seconds


def besides_attention(
    module: Module, kind: LayerKind, at: LayoutColumns, machine: MachineModel, forward: bool
) -> Number:
    """Seconds of one pass over one layer without attention's own: its products, and what tp and experts exchange."""
    work, which = routed_work(module, kind, at, machine.timing), 0 if forward else 1
    own = machine.forward(work, at.dtype) if forward else machine.backward(work, at.dtype)
    groups = LayerGroups(strided_group(at.tp), strided_group(1), strided_group(1))
    exchanges = tensor_seconds(module, kind, at, machine, groups), expert_seconds(module, kind, at, machine)
    return own + exchanges[0][which] + exchanges[1][which]
