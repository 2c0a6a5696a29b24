"""What replicas owe each other in a step: gradients reduced, parameters gathered, the optimizer's pass over its part.

ZeRO (arXiv 1910.02054): from stage 1 on each replica updates a shard, and what it updated is gathered; from stage 3
on parameters are gathered for each micro-batch's forward and backward, and its gradients reduced at once, as FSDP does.
"""

from dataclasses import dataclass

import numpy as np

from planner.costs.static.machine import Machine
from planner.costs.static.setup import Number, Setup
from planner.costs.static.states import shards
from planner.specs.layers import kind_counts
from planner.specs.model import Module
from planner.specs.parameters import expert_parameters, parameters
from planner.units import GB, MS

BF16 = 2.0  # bytes of an element
UPDATE_BYTES = (
    30.0  # Adam reads gradient, master weight and two moments in float32, and writes three of them and weights
)


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters on one rank of a middle stage, and the group of ranks that hold the same: its size and stride."""

    count: Number
    replicas: Number
    stride: Number


def held(module: Module, setup: Setup) -> tuple[Held, Held]:
    """The dense part, whose replicas are dp and cp, and the experts, whose replicas are fewer."""
    sparse = expert_parameters(module) * kind_counts(module).get("moe", 0)
    dense = parameters(module).total - sparse
    return (
        Held(dense / (setup.tp * setup.pp), setup.dp * setup.cp, setup.tp),
        Held(sparse / (setup.ep * setup.etp * setup.pp), setup.edp, setup.ep * setup.etp),
    )


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Seconds of one reduction of all gradients and one gathering of all parameters, on their own."""

    reduce: Number
    gather: Number


def exchanged(part: Held, setup: Setup, machine: Machine) -> Exchanged:
    """Over rings; where ZeRO shards over fewer ranks than there are replicas, the rest is an all-reduce of shards."""
    shard = shards(setup, part.replicas)
    copies, wires = part.replicas / shard, machine.wires
    gradients = part.count * machine.timing.gradient_bytes
    scattered = scatter(gradients, shard, part.stride, setup, machine)
    between = wires.all_reduce(gradients / shard, copies, part.stride * shard)
    whole = wires.gather(gradients, part.replicas, part.stride)
    whole = whole + scatter(gradients, part.replicas, part.stride, setup, machine)
    gathered = wires.gather(part.count * setup.element, shard, part.stride)
    there = np.where(part.count > 0, 1.0, 0.0)  # a dense model has no experts, whose exchange would wait all the same
    sharded = setup.zero > 0
    return Exchanged(there * np.where(sharded, scattered + between, whole), there * np.where(sharded, gathered, 0.0))


def scatter(size_bytes: Number, size: Number, stride: Number, setup: Setup, machine: Machine) -> Number:
    """Gradients to the ranks that sum them: around a ring that sums on its way, or in bf16 to each at once."""
    if setup.compressed:
        narrow = size_bytes * BF16 / machine.timing.gradient_bytes
        return machine.wires.all_to_all(narrow, size, stride)
    return machine.wires.gather(size_bytes, size, stride)


def unhidden(module: Module, setup: Setup, machine: Machine, compute: tuple[Number, Number]) -> Number:
    """Seconds of exchange that no compute hides. `compute`: of one micro-batch on a stage, forward and backward."""
    parts = [exchanged(part, setup, machine) for part in held(module, setup)]
    reduce, gather = sum(p.reduce for p in parts), sum(p.gather for p in parts)
    ends = setup.pp / module.layers  # the first layer's gathering and the last one's reduction have nothing beside them
    forward, backward = (machine.timing.dp_window * seconds * (1.0 - ends) for seconds in compute)
    reduced, gathered = np.maximum(reduce * ends, reduce - backward), np.maximum(gather * ends, gather - forward)
    times = np.where(
        setup.pp > 1, 1.0, setup.micro_batches
    )  # under a pipeline taken to stay gathered, as torchtitan does
    once = gathered + reduced * np.where(setup.zero == 2, times, 1.0)  # shards of gradients: reduced as they come
    each = gathered + np.maximum((gather + reduce) * ends, gather + reduce - backward)
    if setup.adapters:
        return np.zeros_like(once)
    return np.where(setup.zero >= 3, each * times, once)


def update(module: Module, setup: Setup, machine: Machine) -> Number:
    """Seconds of the optimizer on one rank: bound by memory, and some for each rank that has a shard."""
    seconds: Number = 0.0
    if setup.adapters:
        return seconds
    for part in held(module, setup):
        shard = np.where(setup.zero > 0, shards(setup, part.replicas), 1.0)
        seconds = seconds + part.count / shard * UPDATE_BYTES / (machine.device.memory_gb_per_s * GB)
    dense = held(module, setup)[0]
    over = np.where(setup.zero > 0, shards(setup, dense.replicas), 1.0)
    return seconds + machine.timing.shard_ms * MS * np.maximum(0.0, over - 1.0)
