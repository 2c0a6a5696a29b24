"""What recomputing a set of parts takes in a layer, and what it frees there: for any number of layouts at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import LayoutColumns, Number, recompute_columns
from planner.costs.machine_model import MachineModel
from planner.costs.memory.footprint import token_bytes
from planner.costs.step.stage_seconds import mean_layer_passes
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts
from planner.specs.parallelism import Recompute


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
