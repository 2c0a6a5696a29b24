"""Data-parallel communication of a step: gradients reduced, parameters gathered, and the optimizer on its shard.

ZeRO (arXiv 1910.02054): from stage 1 on each replica updates a shard, and what it updated is gathered; under stage 3
parameters are gathered for each micro-batch's forward and backward, and its gradients are reduced at once, as FSDP
does. With HSDP (arXiv 2304.11277) each shard of gradients is then all-reduced over its copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs.distinct_columns import on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.memory.model_states import (
    first_stage_layers,
    layer_expert_parameters,
    rank_embedding_head,
    stage_layers,
    trained_expert_parameters,
)
from planner.costs.network.mesh_groups import group_along, group_fields, group_on_stage
from planner.costs.network_model import CommGroup, NetworkModel
from planner.errors import InputError
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.layers import Module
from planner.specs.layers.blocks import LayerKind
from planner.specs.parallelism import DEFAULT_RANK_ORDER, MESH_DIMS
from planner.specs.parameters import embedding_head_parameters, layer_parameters
from planner.specs.trained_parameters import trained_embedding_head_parameters, trained_layer_parameters
from planner.units import GB, MS, NS

BF16_BYTES = 2.0  # bytes of an element
# Adam reads gradient, master weight and two moments in float32, and writes three of them and weights.
UPDATE_BYTES = 30.0


# What the update of a stage's parameters depends on, and in the default order of ranks their collectives.
REPLICA_FIELDS = ("ranks", "tp", "pp", "vpp", "ep", "etp", "replica", "zero")


def exchange_fields(at: LayoutColumns) -> tuple[str, ...]:
    """What the collectives of a stage's parameters depend on: where ranks of cp and dp are no neighbours, on both."""
    return REPLICA_FIELDS if at.rank_order == DEFAULT_RANK_ORDER else group_fields(at, REPLICA_FIELDS, MESH_DIMS)


class ReplicatedParameters(NamedTuple):
    """Parameters on one rank, and the ranks that shard or replicate them."""

    count: Number
    trained: Number  # those of them that have gradients
    stay_gathered: (
        Number  # those that stay gathered from forward to backward: outside the layers, as FSDP2's root module
    )
    shard: CommGroup  # ranks over which ZeRO shards them
    copies: CommGroup  # ranks that have the same shard (HSDP)
    calls: Number  # collectives that they take


def replicated_on_stage(
    module: Module, at: LayoutColumns, per_node: int
) -> tuple[ReplicatedParameters, ReplicatedParameters]:
    """Parameters of the first stage, whose backward ends last: the dense part with its dp·cp·replica copies, and the
    experts with fewer. `per_node`: ranks of a node.
    """
    outside = np.where(at.pp > 1, rank_embedding_head(module, at, 0), embedding_head_parameters(module) / at.tp)
    staged = rank_embedding_head(module, at, 0, trained=True)
    trained = np.where(at.pp > 1, staged, trained_embedding_head_parameters(module) / at.tp)
    return replicated_in_layers(module, at, stage_layers(module, at, 0), per_node, (outside, trained))


def replicated_in_layers(
    module: Module,
    at: LayoutColumns,
    layers: Mapping[LayerKind, Number],
    per_node: int,
    outside: tuple[Number, Number] = (0.0, 0.0),
) -> tuple[ReplicatedParameters, ReplicatedParameters]:
    """Parameters of so many layers of each kind on one rank: the dense part, with those `outside` layers (all of them,
    and the trained ones), and the experts.
    """
    stage, trained = 0.0, 0.0
    for kind, count in layers.items():
        stage = stage + count * (layer_parameters(module, kind) - layer_expert_parameters(module, kind))
        trained = trained + count * (trained_layer_parameters(module, kind) - trained_expert_parameters(module, kind))
    sparse, taught = (
        sum(parameters(module, kind) * count for kind, count in layers.items())
        for parameters in (layer_expert_parameters, trained_expert_parameters)
    )
    calls = sum(layers.values())
    over = np.where(np.asarray(at.replica) > 1, np.minimum(at.sharding, at.edp), at.edp)
    shard, copies = group_along(at, ("cp", "dp"), per_node), group_along(at, ("replica",), per_node)
    stride = at.ep * at.etp
    shared = group_on_stage(at, over, stride, per_node)
    others = group_on_stage(at, at.edp / over, stride * over, per_node)
    experts = ReplicatedParameters(sparse / stride, taught / stride, 0.0, shared, others, calls)
    count, graded = stage / at.tp + outside[0], trained / at.tp + outside[1]
    return ReplicatedParameters(count, graded, outside[0], shard, copies, calls), experts


class ReplicaExchange(NamedTuple):
    """Seconds of one reduction of all gradients, and of gathering parameters for forward, and again for backward."""

    reduce: Number = 0.0
    gather: Number = 0.0
    backward_gather: Number = 0.0


def replica_exchange(
    part: ReplicatedParameters, at: LayoutColumns, network: NetworkModel, timing: TimingCoefficients
) -> ReplicaExchange:
    """Seconds of the collectives of these parameters, over rings; without ZeRO nothing is sharded, and gradients are
    all-reduced over all replicas.
    """
    width = at.element if at.full_precision else timing.gradient_bytes
    updated: Number = np.where(
        np.asarray(at.zero) >= 3, part.count, part.trained
    )  # below, only what was updated is gathered
    gradients, weights = part.trained * width, updated * at.element
    between = network.all_reduce(gradients / part.shard.size, part.copies, part.calls)
    sharded = scatter_gradients(gradients, part, at, network, width) + between
    farthest = np.maximum(part.shard.span, np.where(np.asarray(part.copies.size) > 1, part.copies.span, 1.0))
    everyone = CommGroup(part.shard.size * part.copies.size, part.shard.stride, farthest)
    unsharded = part._replace(shard=everyone)
    whole = scatter_gradients(gradients, unsharded, at, network, width) + network.all_gather(
        gradients, everyone, part.calls
    )
    gather = network.all_gather(weights, part.shard, part.calls)
    backward_gather = network.all_gather(weights - part.stay_gathered * at.element, part.shard, part.calls)
    graded = np.where(part.trained > 0, 1.0, 0.0)  # a dense model has no experts, and pays no latency for them
    gathers = np.where(updated > 0, 1.0, 0.0) * np.where(at.zero > 0, 1.0, 0.0)
    return ReplicaExchange(graded * np.where(at.zero > 0, sharded, whole), gathers * gather, gathers * backward_gather)


def scatter_gradients(
    gradients: Number, part: ReplicatedParameters, at: LayoutColumns, network: NetworkModel, width: float
) -> Number:
    """Seconds of a reduce-scatter of gradients: around a ring that sums on its way, or in bf16 by all-to-all."""
    if at.gradients == "bf16":
        return network.all_to_all(gradients * BF16_BYTES / width, part.shard, part.calls)
    return network.reduce_scatter(gradients, part.shard, part.calls)


def exposed_part(seconds: Number, compute: Number, window: Number, uncovered: Number) -> Number:
    """Exposed seconds of a collective next to `compute` seconds of compute, of which it can use the share `window`.

    `uncovered` is the share of the collective with no compute next to it, as the first layer's gather and the last
    one's reduction.
    """
    return np.maximum(seconds * uncovered, seconds - window * compute * (1.0 - uncovered))


def exposed_dp_seconds(
    module: Module, at: LayoutColumns, machine: MachineModel, compute: tuple[Number, Number]
) -> Number:
    """Exposed seconds of data-parallel communication in a step. `compute`: of one micro-batch on a stage, forward and
    backward.
    """
    reduce, gather, backward_gather = on_distinct(
        at, exchange_fields(at), lambda some: stage_exchange(module, some, machine)
    )
    uncovered, window, (forward, backward) = 1.0 / first_stage_layers(module.layers, at), machine.dp_window, compute
    gathered = exposed_part(gather, forward, machine.updated_window, uncovered)
    reduced = exposed_part(reduce, backward, window, uncovered)
    kept = np.asarray(machine.accounting.keeps_gathered) & (np.asarray(at.pp) > 1)
    times = np.where(kept, 1.0, at.micro_batches) * at.vpp
    reductions = 1.0 if machine.accounting.holds_gradients else at.micro_batches
    once = gathered + reduced * np.where(at.zero == 2, reductions, 1.0)
    first = np.minimum(1.0, uncovered * at.vpp)  # one layer of each chunk
    forwards = exposed_part(gather / at.vpp, forward / at.vpp, window, first)
    backwards = exposed_part((backward_gather + reduce) / at.vpp, backward / at.vpp, machine.backward_window, first)
    return np.where(at.zero >= 3, (forwards + backwards) * times, once)


def stage_exchange(module: Module, at: LayoutColumns, machine: MachineModel) -> ReplicaExchange:
    """The collectives of all parameters of the first stage."""
    return exchange_of(replicated_on_stage(module, at, machine.network.per_node), at, machine)


def exchange_of(parts: Sequence[ReplicatedParameters], at: LayoutColumns, machine: MachineModel) -> ReplicaExchange:
    """The collectives of these parameters, one after another."""
    each = [replica_exchange(part, at, machine.network, machine.timing) for part in parts]
    return ReplicaExchange(*(sum(numbers) for numbers in zip(*each, strict=True)))


def optimizer_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of the optimizer on one rank: its pass, and a constant for each rank that has a shard."""
    count, shards = on_distinct(at, exchange_fields(at), lambda some: stage_update(module, some, machine))
    return count * parameter_update_seconds(at, machine) + shards


def host_update_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds by which the optimizer takes longer with all of its moments in host memory."""
    each = (optimizer_seconds(module, replace(at, optimizer_offload=share), machine) for share in (0.0, 1.0))
    on_device, in_host = each
    return in_host - on_device


def stage_update(module: Module, at: LayoutColumns, machine: MachineModel) -> tuple[Number, Number]:
    """Parameters that a rank of the first stage updates, and seconds of the framework's work for its shards."""
    parts = replicated_on_stage(module, at, machine.network.per_node)
    return updated_parameters(parts, at), shards_seconds(parts[0], at, machine.timing)


def updated_parameters(parts: Sequence[ReplicatedParameters], at: LayoutColumns) -> Number:
    """Parameters that a rank updates."""
    count: Number = 0.0
    for part in parts:
        count = count + part.trained / np.where(at.zero > 0, part.shard.size, 1.0)
    return count


def parameter_update_seconds(at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of the optimizer for each parameter, in the mean of those whose moments are on the device, bound by its
    memory, and those in host memory, which are updated thereafter. Raises InputError where that has no price.
    """
    on_device = UPDATE_BYTES / (machine.device.memory_gb_per_s * GB)
    if not np.any(at.optimizer_offload):
        return on_device
    in_host = machine.timing.host_update_ns
    if in_host is None:
        message = "moments are in host memory, and the software does not say how long their update takes there"
        raise InputError(message, where="layouts", fix="optimizer_offload: 0, or timing.host_update_ns in its file")
    return (1.0 - at.optimizer_offload) * on_device + at.optimizer_offload * in_host * NS


def shards_seconds(dense: ReplicatedParameters, at: LayoutColumns, timing: TimingCoefficients) -> Number:
    """Seconds of the framework's work for each rank that has a shard."""
    shards = np.where((np.asarray(at.zero) > 0) & (np.asarray(dense.trained) > 0), dense.shard.size, 1.0)
    return timing.shard_ms * MS * np.maximum(0.0, shards - 1.0)
