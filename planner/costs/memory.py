"""Bytes on one rank: states by ZeRO stage, activations by tokens, the layer that is gathered, and the cap.

States of mixed-precision Adam take 16 bytes a parameter: ZeRO-1 shards the 12 of the optimizer, ZeRO-2 the gradients
too, ZeRO-3 everything (Rajbhandari et al., arXiv 1910.02054).
"""

from typing import NamedTuple

from planner.plan.model import Layout
from planner.specs.base import changed
from planner.specs.job import Limits, Sync
from planner.specs.model import Module
from planner.specs.parameters import parameters
from planner.specs.profile import Device, ModuleCosts
from planner.specs.shapes import BYTES, STATE_BYTES
from planner.units import GIB, KIB

MOST_TOKENS = 2**40  # where activations cost next to nothing


def state_bytes(module: Module, layout: Layout) -> float:
    """Weights, gradients and optimizer states of one module on one of its ranks."""
    ways = layout.mesh.get("tp", 1) * layout.mesh.get("pp", 1)
    held = parameters(module).total / ways
    replicas = len(layout.ranks) / ways
    whole = STATE_BYTES[layout.dtype]
    weights = gradients = BYTES[layout.dtype]
    sharded = {0: 0, 1: whole - weights - gradients, 2: whole - weights, 3: whole}[layout.zero]
    return held * (whole - sharded) + held * sharded / replicas + gathered_bytes(module, layout)


def gathered_bytes(module: Module, layout: Layout) -> float:
    """Under ZeRO-3: the layer in use and the next one, whole, and the ends."""
    if layout.zero < 3:
        return 0.0
    count = parameters(module)
    return float((2 * count.layer + count.ends) * BYTES[layout.dtype]) / layout.mesh.get("tp", 1)


def activation_bytes(costs: ModuleCosts, layers: int, ends: bool, tokens: float) -> float:
    """Kept from forward to backward by `layers` layers (and the ends) for this rank's share of tokens."""
    per_token = costs.layer.activation_kib_per_token * layers / costs.layer.layers
    if ends and costs.ends:
        per_token += costs.ends.activation_kib_per_token
    return per_token * KIB * tokens


def memory_cap(device: Device, limits: Limits) -> float:
    """What a plan may use of a device: its memory less the context and the margin."""
    return (device.memory_gib * (1 - limits.memory_margin) - device.reserved_gib) * GIB


def token_cap(module: Module, costs: ModuleCosts, layout: Layout, device: Device, limits: Limits) -> int:
    """Tokens that one rank can hold in a micro-batch. The job's own limit replaces the model; may be ≤ 0."""
    if limits.tokens_per_rank is not None:
        return limits.tokens_per_rank
    free = memory_cap(device, limits) - state_bytes(module, layout)
    per_token = activation_bytes(costs, module.layers, True, 1.0)
    return int(min(free // per_token, MOST_TOKENS)) if per_token > 0 else MOST_TOKENS


class Stage(NamedTuple):
    """A ZeRO stage, when it lets ranks meet, and what it leaves of each."""

    zero: int
    sync: Sync
    cap: int  # tokens of a micro-batch; may be ≤ 0


def zero_stages(
    module: Module, costs: ModuleCosts, layout: Layout, device: Device, limits: Limits
) -> tuple[Stage, ...]:
    """The same layout under each ZeRO stage: 3 gathers in every micro-batch, the others meet once a step."""
    stages = [changed(layout, zero=zero) for zero in range(4)]
    return tuple(
        Stage(each.zero, "micro_batch" if each.zero == 3 else "step", token_cap(module, costs, each, device, limits))
        for each in stages
    )
