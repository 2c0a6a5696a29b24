"""What ZeRO-3's collectives add at least to passes of unequal micro-batches, which they wait for in turn.

A collective of all replicas hides behind the longest of its passes on any of them, and follows the one before it. So
the time of a rank without a pipeline, or of the last one in 1F1B, falls into segments, each with both passes of a
micro-batch, from one reduction to the next. One of P seconds, which has x seconds of a gather, y of a reduction, of
which a share u has no compute beside it and the rest hides in a share h of compute, takes

    P + max(u·x, x − h·f) + max(u·y, y − h·b)        f: its longest forward, b: its longest backward

P is at least both passes of any replica. Passes are linear in tokens and token pairs, beside constants and the host's
launches, so that f ≤ φ·P + δ: φ is the greatest share that a forward has in both passes, as it is with the shortest or
the longest sequence, and δ what it takes without tokens. So it is of b; where passes are not linear, f ≤ P and b ≤ P.

Over all segments that is convex in their seconds, so no less than with equal ones; and the sum over them the least of
its values at ΣP, and where one of the collectives begins to be hidden, if that is later.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.mesh_groups import group_fields, layer_group_dims
from planner.costs.network.replica_exchange import exposed_part
from planner.costs.step.stage_seconds import MicroBatchSeconds, mean_layer_seconds
from planner.specs.layers import Module
from planner.units import MS

NO_TOKENS = 1e-3
NEVER = 1e-30  # a share of compute in which nothing can be hidden


class SequenceSizes(NamedTuple):
    """The sequences of unequal micro-batches, tokens of the shortest and of the longest."""

    shortest: float
    longest: float


class Beside(NamedTuple):
    """The most compute beside a collective, of a segment's seconds P: share·P + constant."""

    share: Number
    constant: Number


class Turns(NamedTuple):
    """Collectives of one kind that a rank waits for in turn."""

    count: Number
    seconds: Number  # of one
    beside: Beside


def added_in_turn(turns: tuple[Turns, Turns], passes: Number, window: float, uncovered: Number) -> Number:
    """Seconds that these collectives add to `passes`, all seconds of compute in their segments, at least."""
    hides = np.maximum(NEVER, window * (1.0 - uncovered))

    def total(compute: Number) -> Number:
        each = (
            np.where(
                np.asarray(count) > 0,
                count
                * exposed_part(
                    seconds, beside.share * compute / np.maximum(1.0, count) + beside.constant, window, uncovered
                ),
                0.0,
            )
            for count, seconds, beside in turns
        )
        return compute + sum(each)

    least = total(passes)
    for count, seconds, beside in turns:
        hidden = count * ((1.0 - uncovered) * seconds / hides - beside.constant) / np.maximum(NEVER, beside.share)
        least = np.minimum(least, total(np.maximum(passes, hidden)))
    return np.maximum(0.0, least - passes)


def same_micro_batch(
    module: Module,
    at: LayoutColumns,
    sizes: SequenceSizes,
    machine: MachineModel,
    layers: Number,
    full: tuple[float, float] | None,
) -> tuple[Beside, Beside]:
    """The most of forward and of backward in a segment that has both passes of a micro-batch through these layers.
    `full`: the layers that are recomputed beside each, the fewest and the most; None: as the layouts say.
    """
    pause, linear = machine.timing.micro_batch_ms * MS, np.asarray(at.ring == 1) & is_linear(module)
    few, most = (pass_shares(module, at, sizes, machine, each) for each in full or (None, None))
    each = (few.most_forward, few.forward), (most.most_backward, most.backward)
    forward, backward = (
        Beside(np.where(linear, share, 1.0), np.where(linear, constant * layers + pause, 0.0))
        for share, constant in each
    )
    return forward, backward


class PassShares(NamedTuple):
    """Forward and backward of a layer in any micro-batch: shares of both, beside what they take without tokens."""

    most_forward: Number
    most_backward: Number
    forward: Number  # seconds without tokens
    backward: Number


def pass_shares(
    module: Module, at: LayoutColumns, sizes: SequenceSizes, machine: MachineModel, full: float | None = 0.0
) -> PassShares:
    """The shares of passes that are linear in tokens and token pairs, with this share of layers recomputed in full;
    None: with what the layouts recompute.
    """
    if full is not None:
        at = replace(at, full_recompute=full, recomputed_parts=frozenset(), alike={})

    names = (*sharding_fields(module, at), "full_recompute")
    return on_distinct(at, names, distinct_pass_shares, module, sizes, machine)


def distinct_pass_shares(at: LayoutColumns, module: Module, sizes: SequenceSizes, machine: MachineModel) -> PassShares:
    """Shares of passes of layouts that all differ in their shards."""
    at = replace(at, micro_batch=1.0, alike={})
    none, device = replace(at, seq=NO_TOKENS), machine.without_launches
    constants, idle = (linear_layer_seconds(module, none, each) for each in (machine, device))
    shares: list[Number] = []
    for tokens in sizes:
        found = linear_layer_seconds(module, replace(at, seq=tokens), device)
        shares.append((found.forward.seconds - idle.forward.seconds) / (found.seconds - idle.seconds))
    most, least = np.maximum(*shares), np.minimum(*shares)
    return PassShares(most, 1.0 - least, constants.forward.seconds, constants.backward.seconds)


def sharding_fields(module: Module, at: LayoutColumns) -> tuple[str, ...]:
    """What the seconds of layers depend on but for the micro-batch."""
    names = group_fields(at, LAYER_FIELDS, layer_group_dims(at, module.routed_experts is not None))
    return tuple(name for name in names if name not in ("seq", "micro_batch"))


def linear_layer_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> MicroBatchSeconds:
    """Seconds of one layer in the mean of all, without what cp exchanges around a ring: attention hides some of it."""
    found = mean_layer_seconds(module, at, machine)
    forward, backward = (
        replace(each, cp=np.where(np.asarray(at.ring) > 1, 0.0, each.cp)) for each in (found.forward, found.backward)
    )
    return MicroBatchSeconds(forward, backward)


def is_linear(module: Module) -> bool:
    """Whether passes are linear in tokens and token pairs: no windows, no experts of uneven load, nothing read."""
    plain = module.routed_experts is None and not module.cross_attention_width
    return plain and all(module.window_of(layer) is None for layer in range(module.layers))
