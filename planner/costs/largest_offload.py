"""The largest share of activations that can be offloaded so that its copies hide behind compute, for a million layouts.

The rule is that of costs/memory/offload.py, for every layout of a space at once: a layer's shortest item computes for
T(s)/s a token in the faster pass, and its activations take A/B a token to the host. Here A is that of the kind of layer
that keeps most, so that no chunk's mean hides less.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs.compute.expert_load import routed_work
from planner.costs.compute.layer_work import kinds_and_windows, layer_work
from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.memory.footprint import token_bytes
from planner.costs.memory.offload import STEPS
from planner.costs.network.expert_dispatch import expert_seconds
from planner.costs.network.layer_traffic import LayerGroups, tensor_seconds
from planner.costs.network_model import strided_group
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind
from planner.units import GB

MANY_TOKENS = float(2**20)  # tokens of an item, the second point of a straight line
ROUNDING = 1e-9  # relative: the same rule in another order of its sums


class LargestOffload(NamedTuple):
    """Largest shares, (layouts,) each, multiples of 1/STEPS; 0 where a chunk has no layer between two others."""

    partial: Number  # where none or some of the layers are recomputed in full
    full: Number  # where all of them are


def largest_offload(module: Module, at: LayoutColumns, machine: MachineModel, size: int) -> LargestOffload:
    """The shares of layouts whose shortest item has `size` tokens."""
    found: LargestOffload = on_distinct(at, LAYER_FIELDS, largest_of_layers, module, machine, size)
    chunks = np.asarray(at.pp * at.vpp)
    even = np.mod(module.layers, chunks) == 0
    with_ends = ~even & (np.mod(module.layers + 2, chunks) == 0)  # as costs/memory/model_states.py divides layers
    least = np.where(with_ends, (module.layers + 2) / chunks - 1.0, np.floor(module.layers / chunks))
    plain = np.where(least > 2, found.partial, 0.0)
    return LargestOffload(plain, np.where(even & (least > 2), np.maximum(found.full, plain), plain))


def largest_of_layers(at: LayoutColumns, module: Module, machine: MachineModel, size: int) -> LargestOffload:
    """The largest shares in layers, wherever they are, of layouts that all differ in what layers depend on."""
    one = replace(at, cp=1.0, ulysses=1.0, micro_batch=1.0)
    seconds: Number = 0.0
    for dispatch in at.dispatches:  # of several, the one that hides most
        alike = replace(one, dispatch=dispatch)
        passes = [layer_token_seconds(module, alike, machine, size, forward) for forward in (True, False)]
        seconds = np.maximum(seconds, np.minimum(*passes))
    each = [token_bytes(module, kind, at, machine.accounting) for kind in kind_counts(module)]
    sent = seconds * (machine.device.host_gb_per_s or 0.0) * GB * (1.0 - ROUNDING)

    def share(sizes: list[Number]) -> Number:
        return np.floor(np.minimum(1.0, sent / np.maximum.reduce(np.broadcast_arrays(*sizes))) * STEPS) / STEPS

    return LargestOffload(share([one.with_recompute for one in each]), share([one.input_only for one in each]))


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
