"""What replicas owe each other in a step: gradients reduced, parameters gathered, the optimizer's pass over its part.

ZeRO (arXiv 1910.02054): from stage 1 on each replica updates a shard, and what it updated is gathered; from stage 3
on parameters are gathered for each micro-batch's forward and backward, and its gradients reduced at once, as FSDP does.
With HSDP (arXiv 2304.11277) each shard of gradients is then all-reduced over its copies.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.costs.columns import Columns, Number
from planner.costs.compute.machine import Machine
from planner.costs.memory.states import ends_held, held_layers, layer_experts
from planner.costs.network.network import Group, Network, group
from planner.specs.layers import Module
from planner.specs.parameters import end_parameters, layer_parameters
from planner.specs.timing import Timing
from planner.units import GB, MS

BF16 = 2.0  # bytes of an element
# Adam reads gradient, master weight and two moments in float32, and writes three of them and weights.
UPDATE_BYTES = 30.0


class Held(NamedTuple):
    """Parameters on one rank, and who has the same."""

    count: Number
    kept: Number  # of these, those that stay gathered from forward to backward: outside the layers, as FSDP2's root
    shard: Group  # ranks that share them out
    copies: Group  # ranks that have the same shard
    calls: Number  # collectives in which they travel


def held(module: Module, at: Columns) -> tuple[Held, Held]:
    """Of the first stage, which is done last: the dense part, whose copies are dp, cp and replica, and the experts, of
    which there are fewer.
    """
    layers, stage = held_layers(module, at, 0), 0.0
    ends = np.where(at.pp > 1, ends_held(module, at, 0), end_parameters(module) / at.tp)
    for kind, count in layers.items():
        stage = stage + count * (layer_parameters(module, kind) - layer_experts(module, kind))
    sparse = sum(layer_experts(module, kind) * count for kind, count in layers.items())
    calls = sum(layers.values())
    over = np.where(np.asarray(at.replica) > 1, np.minimum(at.sharding, at.edp), at.edp)
    shard, copies = group(at.sharding, at.tp), group(at.replica, at.tp * at.sharding)
    stride = at.ep * at.etp
    experts = Held(sparse / stride, 0.0, group(over, stride), group(at.edp / over, stride * over), calls)
    return Held(stage / at.tp + ends, ends, shard, copies, calls), experts


class Exchanged(NamedTuple):
    """Seconds of one reduction of all gradients, and of gathering parameters for forward, and again for backward."""

    reduce: Number = 0.0
    gather: Number = 0.0
    again: Number = 0.0


def exchanged(part: Held, at: Columns, network: Network, timing: Timing) -> Exchanged:
    """Over rings; below ZeRO-1 nothing is shared out, and gradients are all-reduced over all who have the same."""
    width = at.element if at.wide else timing.gradient_bytes
    gradients, weights = part.count * width, part.count * at.element
    between = network.all_reduce(gradients / part.shard.size, part.copies, part.calls)
    sharded = scatter(gradients, part, at, network, width) + between
    everyone = Group(
        part.shard.size * part.copies.size, part.shard.stride, np.maximum(part.shard.span, part.copies.span)
    )
    all_of = part._replace(shard=everyone)
    whole = scatter(gradients, all_of, at, network, width) + network.gather(gradients, everyone, part.calls)
    gather = network.gather(weights, part.shard, part.calls)
    again = network.gather(weights - part.kept * at.element, part.shard, part.calls)
    there = np.where(part.count > 0, 1.0, 0.0)  # a dense model has no experts, whose exchange would wait all the same
    at_all = there * np.where(at.zero > 0, 1.0, 0.0)
    return Exchanged(there * np.where(at.zero > 0, sharded, whole), at_all * gather, at_all * again)


def scatter(gradients: Number, part: Held, at: Columns, network: Network, width: float) -> Number:
    """Gradients to the ranks that sum them: around a ring that sums on its way, or in bf16 to each at once."""
    if at.gradients == "bf16":
        return network.all_to_all(gradients * BF16 / width, part.shard, part.calls)
    return network.scatter(gradients, part.shard, part.calls)


def exposed(seconds: Number, beside: Number, window: Number, alone: Number) -> Number:
    """Of an exchange, what no compute hides. `beside`: seconds of compute that run meanwhile, of which an exchange can
    use this window; `alone`: the share of the exchange that has nothing beside it, as the first layer's gathering and
    the last one's reduction.
    """
    return np.maximum(seconds * alone, seconds - window * beside * (1.0 - alone))


def unhidden(module: Module, at: Columns, machine: Machine, compute: tuple[Number, Number]) -> Number:
    """Seconds of exchange in a step that no compute hides. `compute`: of one micro-batch on a stage, both passes."""
    parts = [exchanged(part, at, machine.network, machine.timing) for part in held(module, at)]
    reduce, gather, again = (sum(numbers) for numbers in zip(*parts, strict=True))
    alone, window, (forward, backward) = at.pp / module.layers, machine.window, compute
    gathered, reduced = exposed(gather, forward, window, alone), exposed(reduce, backward, window, alone)
    kept = np.asarray(machine.accounting.keeps_gathered) & (np.asarray(at.pp) > 1)
    times = np.where(kept, 1.0, at.micro_batches) * at.vpp
    often = 1.0 if machine.accounting.holds_gradients else at.micro_batches
    once = gathered + reduced * np.where(at.zero == 2, np.where(at.pp > 1, 1.0, often), 1.0)
    if at.adapters:
        return np.zeros_like(once)
    first = np.minimum(1.0, alone * at.vpp)  # of each chunk's layers
    forwards = exposed(gather / at.vpp, forward / at.vpp, window, first)
    backwards = exposed((again + reduce) / at.vpp, backward / at.vpp, window, first)
    return np.where(at.zero >= 3, (forwards + backwards) * times, once)


def update(module: Module, at: Columns, machine: Machine) -> Number:
    """Seconds of the optimizer on one rank: bound by memory, and some for each rank that has a shard."""
    if at.adapters:
        return 0.0
    return updated(held(module, at), at, UPDATE_BYTES / (machine.device.memory_gb_per_s * GB)) + shards_seconds(
        held(module, at)[0], at, machine.timing
    )


def updated(parts: Sequence[Held], at: Columns, per_parameter: float) -> Number:
    """Seconds of the pass over what a rank updates."""
    seconds: Number = 0.0
    for part in parts:
        seconds = seconds + part.count / np.where(at.zero > 0, part.shard.size, 1.0) * per_parameter
    return seconds


def shards_seconds(dense: Held, at: Columns, timing: Timing) -> Number:
    """What a framework does for each rank that has a shard."""
    return timing.shard_ms * MS * np.maximum(0.0, np.where(at.zero > 0, dense.shard.size, 1.0) - 1.0)
