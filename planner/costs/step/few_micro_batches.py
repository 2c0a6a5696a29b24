"""A lower bound on pipelines with few micro-batches, of whatever sizes they are.

Of M micro-batches in this sequence let micro-batch i take x_i seconds in both passes through all layers, X in all, and
a rank's first chunk a share f of that in forward, b in backward, while q is the share of the other layers in the way
there and back. The first rank has the forwards of all before i in front of it, and the backwards of all behind it to
run when it is back:

    T ≥ f·(x_1 + … + x_i) + q·x_i + b·(x_i + … + x_M)        for every i

With weights λ_i that add up to 1 and fall by ρ = (b + q)/(f + q) from one i to the next, the sum of these bounds has
the same factor for every x:

    T ≥ X·(f + λ_1·(b + q)),        λ_1 = (1 − 1/ρ) / (1 − ρ^−M)

Its inverse is concave in M, so where replicas have different numbers of micro-batches it holds for their means. f and b
are the least that forward and backward are of both, q without weight gradients where these may wait; what passes take
without tokens is taken off once for each micro-batch.
"""

from dataclasses import replace

import numpy as np

from planner.costs.distinct_columns import on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.memory.model_states import layers_before
from planner.costs.step.stage_seconds import mean_layer_seconds, weight_gradient_share
from planner.costs.step.unequal_turns import (
    NO_TOKENS,
    SequenceSizes,
    is_linear,
    linear_layer_seconds,
    pass_shares,
    sharding_fields,
)
from planner.specs.layers import Module
from planner.specs.parallelism import ZERO_BUBBLE
from planner.units import MS

LEAST_FALL = 1e-9  # of the weights


def few_micro_batches_seconds(
    module: Module, at: LayoutColumns, most: Number, sizes: SequenceSizes, machine: MachineModel
) -> Number:
    """Seconds of a step at least, (layouts,). `at`: with mean micro-batches, as few as there may be; `most`: as many as
    there may be, in the mean of replicas.
    """
    bare = replace(at, full_recompute=0.0, recomputed_parts=frozenset())
    shares, linear = pass_shares(module, bare, sizes, machine), is_linear(module)
    first = layers_before(module.layers, at, 1.0) / module.layers  # of the first chunk
    forward, backward = (
        np.where(linear, (1.0 - each) * first, 0.0) for each in (shares.most_backward, shares.most_forward)
    )
    waiting, taken_off = 0.0, 0.0
    if at.schedule in ZERO_BUBBLE:
        waiting, taken_off = weight_shares(module, bare, sizes, machine)
    rest = (1.0 - first) * (1.0 - waiting)
    whole = at.micro_batches * linear_layer_seconds(module, bare, machine).seconds * module.layers
    constants = (shares.forward + shares.backward) * module.layers * first * most + taken_off
    least = whole * least_share(forward, backward, rest, np.maximum(1.0, most)) - constants
    return least * (1.0 + machine.jitter(at.ranks)) + machine.timing.step_ms * MS


def least_share(forward: Number, backward: Number, rest: Number, count: Number) -> Number:
    """The least step over X, of so many micro-batches."""
    falls = np.maximum(1.0 + LEAST_FALL, (backward + rest) / np.maximum(LEAST_FALL, forward + rest))
    return forward + (backward + rest) * (1.0 - 1.0 / falls) / (1.0 - falls**-count)


def weight_shares(
    module: Module, at: LayoutColumns, sizes: SequenceSizes, machine: MachineModel
) -> tuple[Number, Number]:
    """The greatest share of weight gradients in both passes of a micro-batch; and their seconds without tokens."""
    return on_distinct(at, sharding_fields(module, at), distinct_weight_shares, module, sizes, machine)


def distinct_weight_shares(
    at: LayoutColumns, module: Module, sizes: SequenceSizes, machine: MachineModel
) -> tuple[Number, Number]:
    """Shares and seconds of weight gradients of layouts that all differ in their shards."""
    device, one = machine.without_launches, replace(at, micro_batch=1.0, full_recompute=0.0, alike={})
    each = [replace(one, seq=tokens) for tokens in (NO_TOKENS, *sizes)]
    weights = [
        weight_gradient_share(module, own, device) * mean_layer_seconds(module, own, device).seconds for own in each
    ]
    both = [linear_layer_seconds(module, own, device).seconds for own in each]
    shares = ((own - weights[0]) / (passes - both[0]) for own, passes in zip(weights[1:], both[1:], strict=True))
    return np.maximum(*shares), weights[0] * module.layers
