"""Bytes of weights, gradients and optimizer states on one rank of a pipeline stage, and of what ZeRO-3 gathers.

ZeRO-1 shards the optimizer, ZeRO-2 the gradients too, ZeRO-3 everything (Rajbhandari et al., arXiv 1910.02054). The
dense part has dp·cp replicas, experts have ranks / (pp·ep·etp).
"""

from typing import NamedTuple

import numpy as np

from planner.costs.static.setup import Number, Setup
from planner.specs.accounting import Accounting
from planner.specs.layers import LayerKind, kind_counts, layer_kinds
from planner.specs.model import Decoder, Module, head_dim, latent_of
from planner.specs.parameters import (
    end_parameters,
    expert_parameters,
    layer_parameters,
    norm_parameters,
    router_parameters,
)

CAST = 2.0  # bytes of a gathered weight


class Held(NamedTuple):
    """Parameters on one rank."""

    layers: Number  # the layers' dense part
    ends: Number  # embedding, learned positions, final norm, head
    experts: Number


class States(NamedTuple):
    """Bytes on one rank."""

    weights: Number
    gradients: Number
    optimizer: Number

    @property
    def total(self) -> Number:
        return self.weights + self.gradients + self.optimizer


def layers_before(layers: int, setup: Setup, chunk: Number) -> Number:
    """Layers in front of a chunk, of pp·vpp. Where they do not come out even, embedding and head stand for one each;
    where neither does, chunks differ by one.
    """
    chunks = setup.pp * setup.vpp
    ends = (np.mod(layers, chunks) != 0) & (np.mod(layers + 2, chunks) == 0)
    plain = np.floor(layers * chunk / chunks + 0.5)
    return np.where(ends, np.clip((layers + 2) * chunk / chunks - 1, 0, layers), plain)


def held_layers(module: Module, setup: Setup, stage: Number) -> dict[LayerKind, Number]:
    """Layers of each kind on a stage: those of chunks stage, pp + stage, 2·pp + stage, …"""
    kinds = layer_kinds(module)
    before = {kind: np.cumsum([0, *(each == kind for each in kinds)]) for kind in kind_counts(module)}
    held: dict[LayerKind, Number] = dict.fromkeys(before, 0)
    for index in range(int(np.max(setup.vpp))):
        chunk = index * setup.pp + stage
        first, last = (layers_before(module.layers, setup, at).astype(int) for at in (chunk, chunk + 1))
        first, last = (np.minimum(at, module.layers) for at in (first, last))
        for kind, count in before.items():
            held[kind] = held[kind] + np.where(index < setup.vpp, count[last] - count[first], 0)
    return held


def replicated(module: Module, kind: LayerKind) -> int:
    """Parameters of a layer that each tensor-parallel rank has whole: norms, the router, latent attention's way down,
    and biases of what is summed over these ranks.
    """
    count = 2 * norm_parameters(module, module.hidden) + (router_parameters(module) if kind == "moe" else 0)
    latent = latent_of(module)
    if latent:
        narrow = latent.q_rank + latent.kv_rank
        count += module.hidden * (narrow + latent.rope_dim) + norm_parameters(module, narrow)
    elif isinstance(module, Decoder) and module.qk_norm:
        count += 2 * norm_parameters(module, head_dim(module))
    if module.bias not in ("none", "qkv"):
        count += module.hidden
    if module.bias in ("all", "all_but_key") and kind != "moe":
        count += module.hidden
    return count


def layer_held(module: Module, kind: LayerKind, setup: Setup) -> tuple[Number, Number]:
    """Parameters of one layer on one rank: of its dense part, and of its experts."""
    whole, experts = replicated(module, kind), expert_parameters(module) if kind == "moe" else 0
    split = layer_parameters(module, kind) - experts - whole
    return whole + split / setup.tp, experts / (setup.ep * setup.etp)


def table(module: Module) -> int:
    """Parameters of an embedding, or of a head."""
    return module.vocab * module.hidden if isinstance(module, Decoder) else 0


def ends_held(module: Module, setup: Setup, stage: Number) -> Number:
    """Of what is outside the layers: the embedding is on the first stage, the head on the last, even if it is tied."""
    if not isinstance(module, Decoder):
        return np.where(stage == setup.pp - 1, end_parameters(module), 0.0)
    positions = module.max_positions * module.hidden if module.positions == "learned" else 0
    norm = norm_parameters(module, module.hidden)
    split = table(module) / setup.tp
    one = module.tied & (setup.pp == 1)
    first = np.where(stage == 0, split + positions, 0.0)
    return first + np.where(stage == setup.pp - 1, np.where(one, 0.0, split) + norm, 0.0)


def held(module: Module, setup: Setup, stage: Number) -> Held:
    """Parameters on one rank of a stage."""
    layers: Number = 0.0
    experts: Number = 0.0
    for kind, count in held_layers(module, setup, stage).items():
        dense, sparse = layer_held(module, kind, setup)
        layers, experts = layers + count * dense, experts + count * sparse
    return Held(layers, ends_held(module, setup, stage), experts)


def per_parameter(setup: Setup, accounting: Accounting) -> States:
    """Bytes of an unsharded parameter of a layer."""
    if setup.precision == "float32":
        return States(4.0, 4.0, accounting.optimizer_bytes - 4.0)
    if accounting.own_master:
        return States(4.0, accounting.gradient_bytes, accounting.optimizer_bytes - 4.0)
    weight = accounting.fp8_weight_bytes if setup.precision == "fp8" else 2.0
    return States(weight, accounting.gradient_bytes, accounting.optimizer_bytes)


def shards(setup: Setup, replicas: Number) -> Number:
    """Ranks over which ZeRO spreads what has so many replicas."""
    return np.where(np.asarray(setup.shard) > 0, np.minimum(setup.shard, replicas), replicas)


def sharded(count: Number, each: States, setup: Setup, replicas: Number) -> States:
    """Bytes of `count` parameters on one of their replicas."""
    over = shards(setup, replicas)
    ways = (np.where(np.asarray(setup.zero) >= stage, over, 1.0) for stage in (3, 2, 1))
    return States(*(count * size / way for size, way in zip(each, ways, strict=True)))


def states(module: Module, setup: Setup, accounting: Accounting, stage: Number) -> States:
    """Weights, gradients and optimizer states on one rank of a stage. Stages count from 0 to pp − 1."""
    part, each = held(module, setup, stage), per_parameter(setup, accounting)
    master = setup.precision == "float32" or accounting.own_master
    ends = each if master else each._replace(weights=CAST)  # ends are never in fp8
    replicas = setup.dp * setup.cp
    parts = (
        sharded(part.layers, each, setup, replicas),
        sharded(part.ends, ends, setup, replicas),
        sharded(part.experts, each, setup, setup.edp),
    )
    whole = States(*(sum(sizes) for sizes in zip(*parts, strict=True)))
    return States(whole.weights, 0.0, 0.0) if setup.adapters else whole  # adapters themselves are next to nothing


def update_bytes(module: Module, setup: Setup, accounting: Accounting, stage: Number) -> Number:
    """Made for the optimizer's step only: a float32 copy of the gradients of its shard, where they are narrower."""
    if accounting.gradient_bytes >= 4.0 or setup.precision == "float32" or setup.adapters:
        return 0.0
    part, copy = held(module, setup, stage), States(0.0, 0.0, 4.0)
    dense = sharded(part.layers + part.ends, copy, setup, setup.dp * setup.cp)
    return dense.optimizer + sharded(part.experts, copy, setup, setup.edp).optimizer


def gathered_bytes(module: Module, setup: Setup, accounting: Accounting, stage: Number) -> Number:
    """Under ZeRO-3, whole on each rank: the layer in use and the next, the head, and the gradients of the largest of
    these as they are computed and as they are reduced; or the whole stage, where it stays gathered.
    """
    part = held(module, setup, stage)
    layer = np.maximum.reduce([sum(layer_held(module, kind, setup)) for kind in held_layers(module, setup, stage)])
    end = np.minimum(part.ends, table(module) / setup.tp)
    once = CAST * (2 * layer + end) + (CAST + accounting.gradient_bytes) * np.maximum(layer, end)
    if accounting.keeps_gathered:
        stays = (CAST + accounting.gradient_bytes) * (part.layers + part.ends + part.experts)
        once = np.where(np.asarray(setup.pp) > 1, np.maximum(stays, once), once)
    return np.where(np.asarray(setup.zero) >= 3, once, 0.0)
