"""Bytes on one rank of a plan's layout, and the cap: states, activations by tokens, and what is left for them."""

from typing import NamedTuple

from planner.costs.recomputing import costs_of_layers, mixed
from planner.costs.static.layouts import setup_of
from planner.costs.static.states import gathered_bytes, states, update_bytes
from planner.plan.model import Layout
from planner.specs.accounting import BUNDLED, Accounting
from planner.specs.base import changed
from planner.specs.job import Limits, Sync
from planner.specs.model import Module
from planner.specs.profile import Device, ModuleCosts
from planner.units import GIB, KIB

MOST_TOKENS = 2**40  # where activations cost next to nothing


def state_bytes(module: Module, layout: Layout, accounting: Accounting = BUNDLED, stage: int | None = None) -> float:
    """Weights, gradients and optimizer states of one module on one of its ranks, and what ZeRO-3 gathers there.

    `stage`: of the pipeline; None: the one that holds most.
    """
    setup = setup_of(layout)
    stages = range(setup.pp) if stage is None else (stage,)
    return wide(layout) * max(
        float(states(module, setup, accounting, each).total + gathered_bytes(module, setup, accounting, each))
        for each in stages
    )


def lasting_bytes(module: Module, layout: Layout, accounting: Accounting, stage: int) -> float:
    """Of these, what stays from step to step: weights and optimizer states."""
    held = states(module, setup_of(layout), accounting, stage)
    return wide(layout) * float(held.weights + held.optimizer)


def updating_bytes(module: Module, layout: Layout, accounting: Accounting, stage: int) -> float:
    """Beside what stays, while the optimizer works: gradients, and what is made of them for it."""
    setup = setup_of(layout)
    gradients = states(module, setup, accounting, stage).gradients
    return wide(layout) * float(gradients + update_bytes(module, setup, accounting, stage))


def wide(layout: Layout) -> float:
    """By how much everything is larger than where it is kept in float32 at most."""
    return 2.0 if layout.dtype == "float64" else 1.0


def activation_bytes(costs: ModuleCosts, layers: int, ends: bool, tokens: float) -> float:
    """Kept from forward to backward by `layers` layers (and the ends) for this rank's share of tokens."""
    per_token = costs.layer.activation_kib_per_token * layers / costs.layer.layers
    if ends and costs.ends:
        per_token += costs.ends.activation_kib_per_token
    return per_token * KIB * tokens


def remade_bytes(costs: ModuleCosts, ends: bool, tokens: float) -> float:
    """Besides, while backward makes one layer's activations again: what the ends kept is gone by then."""
    gone = costs.ends.activation_kib_per_token if ends and costs.ends else 0.0
    return max(0.0, costs.layer.working_kib_per_token - gone) * KIB * tokens


def token_bytes(costs: ModuleCosts, layers: int) -> float:
    """At most at once of one token of a micro-batch, in all layers and the ends."""
    return activation_bytes(costs, layers, True, 1.0) + remade_bytes(costs, True, 1.0)


def memory_cap(device: Device, limits: Limits) -> float:
    """What a plan may use of a device: its memory less the context and the margin."""
    return (device.memory_gib * (1 - limits.memory_margin) - device.reserved_gib) * GIB


def token_cap(
    module: Module, costs: ModuleCosts, layout: Layout, device: Device, limits: Limits, accounting: Accounting = BUNDLED
) -> int:
    """Tokens that one rank can hold in a micro-batch. The job's own limit replaces the model; may be ≤ 0."""
    if limits.tokens_per_rank is not None:
        return limits.tokens_per_rank
    free = memory_cap(device, limits) - state_bytes(module, layout, accounting)
    layers = range(module.layers)
    per_token = token_bytes(costs_of_layers(costs, mixed(layout, layers)), len(layers))
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
