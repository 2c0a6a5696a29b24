"""Bytes of weights, gradients and optimizer states on one rank of a pipeline stage, and of what ZeRO-3 gathers.

ZeRO-1 shards the optimizer, ZeRO-2 the gradients too, ZeRO-3 everything (Rajbhandari et al., arXiv 1910.02054). The
dense part has dp·cp·replica copies, experts have ranks / (pp·ep·etp).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.distinct_columns import FEWEST_COMPARED, distinct_values
from planner.costs.layout_columns import CAST_PRECISIONS, LayoutColumns, Number
from planner.plan.mesh.even_stages import even_layers_before
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts, layer_kinds
from planner.specs.layers.blocks import Block, LayerKind, block_entry, kind_blocks
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import head_dim, norm_parameters
from planner.specs.parameters import (
    expert_parameters,
    gate_parameters,
    indexer_parameters,
    layer_parameters,
    qk_norm_parameters,
    whole_expert_parameters,
)
from planner.specs.trained_parameters import adapter_parameters
from planner.units import GIB

CAST_BYTES = 2.0  # bytes of a gathered weight
MOMENT_BYTES = 8.0  # of a parameter's two moments in float32


class StageParameters(NamedTuple):
    """Parameters on one rank before ZeRO shards them."""

    layers: Number  # the layers' dense part
    embedding_head: Number  # embedding, learned positions, final norm, head
    experts: Number


class StateBytes(NamedTuple):
    """Bytes of model states on one rank."""

    weights: Number
    gradients: Number
    optimizer: Number

    @property
    def total(self) -> Number:
        return self.weights + self.gradients + self.optimizer


def layers_before(layers: int, at: LayoutColumns, chunk: Number) -> Number:
    """Layers in front of a chunk, of pp·vpp: as the stages say, or as even as they can be."""
    if at.cuts:
        return np.array(at.cuts)[np.asarray(chunk, dtype=np.int64)]
    return even_layers_before(layers, at.pp * at.vpp, chunk)


def layers_by_rank(at: LayoutColumns) -> list[int]:
    """Layers of each pipeline rank, over all of its chunks, of stages that are said."""
    each, ranks = np.diff(at.cuts), int(np.max(at.pp))
    return [int(each[rank::ranks].sum()) for rank in range(ranks)]


def first_stage_layers(layers: int, at: LayoutColumns) -> Number:
    """Layers of the first stage; where stages are as even as they can be, of one in the mean."""
    return layers_by_rank(at)[0] if at.cuts else layers / at.pp


@lru_cache(maxsize=1024)
def kinds_before(module: Module) -> dict[LayerKind, NDArray[np.int64]]:
    """Layers of each kind in front of each layer, and in all: arrays (layers + 1,)."""
    kinds = layer_kinds(module)
    return {kind: np.cumsum([0, *(each == kind for each in kinds)]) for kind in kind_counts(module)}


def stage_layers(module: Module, at: LayoutColumns, stage: Number) -> dict[LayerKind, Number]:
    """Layers of each kind on a stage: those of chunks stage, pp + stage, 2·pp + stage, and so on."""
    columns = np.broadcast_arrays(*(np.asarray(each, dtype=np.int64) for each in (at.pp, at.vpp, stage)))
    if not columns[0].ndim:
        counts = layers_by_kind(module, *map(int, columns), at.cuts)
        return dict(zip(kinds_before(module), counts, strict=True))
    every = np.arange(columns[0].size)
    first, place = distinct_values(columns) if every.size >= FEWEST_COMPARED else (every, every)
    each = np.array([layers_by_kind(module, *(int(column[index]) for column in columns), at.cuts) for index in first])
    return {kind: each[place, number] for number, kind in enumerate(kinds_before(module))}


@lru_cache(maxsize=65536)
def layers_by_kind(module: Module, pp: int, vpp: int, stage: int, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """Layers of each kind on one stage of one pipeline, in the order of `kinds_before`."""
    chunks = np.arange(vpp) * pp + stage
    at = LayoutColumns(ranks=1, seq=1, batch=1, pp=pp, vpp=vpp, cuts=cuts)
    first, last = (layers_before(module.layers, at, end).astype(np.int64) for end in (chunks, chunks + 1))
    first, last = (np.minimum(end, module.layers) for end in (first, last))
    return tuple(int((count[last] - count[first]).sum()) for count in kinds_before(module).values())


def replicated_parameters(module: Module, kind: LayerKind) -> int:
    """Parameters of a layer that each tensor-parallel rank has in full: norms, gates, the router, latent attention's
    down projections, and biases of what is reduced over these ranks.
    """
    norm = module.norms_per_block * norm_parameters(module, module.hidden)
    blocks = sum(
        block_entry(block, REPLICATED_PARAMETERS, "what each rank of tp has whole")(module.of_kind(kind)) + norm
        for block in kind_blocks(kind)
    )
    return blocks + gate_parameters(module, kind)


def replicated_attention(module: Module) -> int:
    """Replicated parameters of attention: latent down projections and their norms, norms of heads, and the
    output bias.
    """
    bias, latent = output_bias(module), module.latent_attention
    if latent:
        compressed = latent.q_rank + latent.kv_rank
        down = module.hidden * (compressed + latent.rope_dim) + indexer_parameters(module)
        return down + norm_parameters(module, compressed) + bias
    return qk_norm_parameters(module) + bias


def replicated_cross_attention(module: Module) -> int:
    """Replicated parameters of cross attention: norms of heads, and the output bias."""
    norms = 2 * norm_parameters(module, head_dim(module)) if module.has_cross_norms else 0
    return norms + output_bias(module)


def output_bias(module: Module) -> int:
    """Parameters of the bias of attention's output projection."""
    return module.hidden if module.bias not in ("none", "qkv") else 0


def replicated_mlp(module: Module) -> int:
    """Replicated parameters of an MLP: the bias of its down projection."""
    return module.hidden if module.bias in ("all", "all_but_key") else 0


def replicated_state_space(module: Module) -> int:
    """Replicated parameters of a state space: the bias of its output projection."""
    return module.hidden if module.ssm and module.ssm.bias else 0


def replicated_linear_attention(module: Module) -> int:
    """Replicated parameters of linear attention: the norm of a head."""
    return module.linear_attention_shape.value_dim if module.linear_attention_shape else 0


def replicated_table(module: Module) -> int:
    """Replicated parameters of a described layer: vectors, and matrices that tp does not shard."""
    whole = (each for each in module.layer_table.matrices if not each.shard)
    return module.layer_table.vectors + sum(each.count * each.outputs * each.inputs for each in whole)


REPLICATED_PARAMETERS: dict[Block, Callable[[Module], int]] = {
    "attention": replicated_attention,
    "cross_attention": replicated_cross_attention,
    "mlp": replicated_mlp,
    "experts": whole_expert_parameters,
    "state_space": replicated_state_space,
    "linear_attention": replicated_linear_attention,
    "matrices": replicated_table,
    "attending_matrices": replicated_table,
}


def rank_layer_parameters(module: Module, kind: LayerKind, at: LayoutColumns) -> tuple[Number, Number]:
    """Parameters of one layer on one rank: of its dense part, and of its experts."""
    whole, experts = replicated_parameters(module, kind), layer_expert_parameters(module, kind)
    split = layer_parameters(module, kind) - experts - whole
    return whole + split / at.tp, experts / (at.ep * at.etp)


def layer_expert_parameters(module: Module, kind: LayerKind) -> int:
    """Parameters of one layer's routed experts."""
    return expert_parameters(module) if "experts" in kind_blocks(kind) else 0


def trained_expert_parameters(module: Module, kind: LayerKind) -> int:
    """Parameters of one layer's routed experts that have gradients: they have no adapters."""
    return layer_expert_parameters(module, kind) if module.trained == "all" else 0


def table_parameters(module: Module) -> int:
    """Parameters of an embedding, or of a head."""
    return module.input_vocabulary * module.hidden


def rank_embedding_head(module: Module, at: LayoutColumns, stage: Number, trained: bool = False) -> Number:
    """Parameters outside the layers on one rank: the embedding on the first stage, the head on the last, even where it
    is tied. `trained`: only those that have gradients.
    """
    own = [
        (end.before_layers, np.where(end.tied & (at.pp == 1), 0.0, rank_end_parameters(end, at)))
        for end in module.embedding_head
        if module.trains_end(end) or not trained
    ]
    first, last = (sum(size for front, size in own if front == side) for side in (True, False))
    return np.where(stage == 0, first, 0.0) + np.where(stage == at.pp - 1, last, 0.0)


def rank_end_parameters(end: EmbeddingHeadWeight, at: LayoutColumns) -> Number:
    """Parameters of one matrix outside the layers on one tp rank; vocabularies are padded to a multiple of tp."""
    return end.parameters - end.sharded_parameters + end.sharded_parameters / at.tp


def stage_parameters(module: Module, at: LayoutColumns, stage: Number) -> StageParameters:
    """Parameters on one rank of a stage."""
    layers: Number = 0.0
    experts: Number = 0.0
    for kind, count in stage_layers(module, at, stage).items():
        dense, sparse = rank_layer_parameters(module, kind, at)
        layers, experts = layers + count * dense, experts + count * sparse
    return StageParameters(layers, rank_embedding_head(module, at, stage), experts)


def trained_stage_parameters(module: Module, at: LayoutColumns, stage: Number) -> StageParameters:
    """Trained parameters on one rank of a stage: all, the projector, or adapters, which come on top of the others."""
    if module.trained == "all":
        return stage_parameters(module, at, stage)
    held = stage_layers(module, at, stage).items()
    layers = sum(count * adapter_parameters(module, kind, at.tp) for kind, count in held)
    return StageParameters(layers, rank_embedding_head(module, at, stage, trained=True), 0.0)


def per_parameter(at: LayoutColumns, accounting: MemoryCoefficients) -> StateBytes:
    """Bytes of model states per unsharded parameter of a layer."""
    if at.full_precision:
        return StateBytes(at.element, at.element, 2.0 * at.element)
    if accounting.own_master:  # below ZeRO-3, the weights of compute stay gathered besides
        unsharded = np.asarray(at.zero) < 3
        extra = np.where(unsharded, 4.0, 0.0)
        return StateBytes(
            np.where(unsharded, 2.0, 4.0), accounting.gradient_bytes, accounting.optimizer_bytes - 4.0 + extra
        )
    weight = accounting.fp8_weight_bytes if at.dtype in CAST_PRECISIONS else 2.0
    return StateBytes(weight, accounting.gradient_bytes, accounting.optimizer_bytes)


def zero_shards(at: LayoutColumns, replicas: Number) -> Number:
    """Ranks over which ZeRO shards states that have `replicas` replicas."""
    return np.where(np.asarray(at.replica) > 1, np.minimum(at.sharding, replicas), replicas)


def zero_sharded_bytes(
    count: Number, each: StateBytes, at: LayoutColumns, accounting: MemoryCoefficients, replicas: Number
) -> StateBytes:
    """Bytes of `count` parameters on one of their replicas, under ZeRO."""
    over, first = zero_shards(at, replicas), 3 if accounting.holds_gradients else 2
    degrees = (np.where(np.asarray(at.zero) >= stage, over, 1.0) for stage in (3, first, 1))
    return StateBytes(*(count * size / degree for size, degree in zip(each, degrees, strict=True)))


def zero_state_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> StateBytes:
    """Bytes of weights, gradients and optimizer states on one rank of a stage. Stages count from 0 to pp − 1."""
    trained, each = trained_stage_parameters(module, at, stage), per_parameter(at, accounting)
    parts = [*parameter_bytes(trained, each, at, accounting)]
    if module.trained != "all":
        frozen = frozen_stage_parameters(module, at, stage)
        parts += parameter_bytes(frozen, frozen_bytes(each, at, accounting), at, accounting)
    whole = StateBytes(*(sum(sizes) for sizes in zip(*parts, strict=True)))
    if not np.any(at.optimizer_offload):
        return whole
    moved = at.optimizer_offload * moment_bytes(module, at, accounting, stage)
    return whole._replace(optimizer=whole.optimizer - moved)


def frozen_bytes(each: StateBytes, at: LayoutColumns, accounting: MemoryCoefficients) -> StateBytes:
    """Bytes of a frozen parameter, of which there is `each` when it is trained: below ZeRO-3 the own runtime has its
    float32 shard beside the gathered copy.
    """
    stored = 4.0 if accounting.own_master and not at.full_precision else 0.0
    return StateBytes(each.weights, 0.0, np.where(np.asarray(at.zero) < 3, stored, 0.0))


def frozen_stage_parameters(module: Module, at: LayoutColumns, stage: Number) -> StageParameters:
    """Parameters on one rank of a stage that have no gradients."""
    whole = stage_parameters(module, at, stage)
    trained = rank_embedding_head(module, at, stage, trained=True)
    return whole._replace(embedding_head=whole.embedding_head - trained)


def parameter_bytes(
    part: StageParameters, each: StateBytes, at: LayoutColumns, accounting: MemoryCoefficients
) -> Iterator[StateBytes]:
    """Bytes of parameters that take `each` bytes, by part, on one of their replicas, under ZeRO."""
    ends = (
        each if at.full_precision or accounting.own_master else each._replace(weights=CAST_BYTES)
    )  # embedding and head are never in fp8
    yield zero_sharded_bytes(part.layers, each, at, accounting, at.data_ranks)
    yield zero_sharded_bytes(part.embedding_head, ends, at, accounting, at.data_ranks)
    yield zero_sharded_bytes(part.experts, each, at, accounting, at.edp)


def moment_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> Number:
    """Bytes of Adam's moments on one rank of a stage, which may be in host memory."""
    return optimizer_shard_bytes(module, at, accounting, stage, moment_width(at, accounting))


def layer_state_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients
) -> tuple[Number, Number]:
    """Bytes of the states of a trained layer on one rank; and of these, Adam's moments."""
    dense, experts = rank_layer_parameters(module, kind, at)
    own, each = StageParameters(dense, 0.0, experts), per_parameter(at, accounting)
    moments = StateBytes(0.0, 0.0, moment_width(at, accounting))
    states, moved = (
        sum(part.total for part in parameter_bytes(own, width, at, accounting)) for width in (each, moments)
    )
    return states, moved


def moment_width(at: LayoutColumns, accounting: MemoryCoefficients) -> float:
    """Bytes of a parameter's two moments."""
    return 2.0 * at.element if at.full_precision else min(MOMENT_BYTES, accounting.optimizer_bytes)


def optimizer_shard_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number, each: float
) -> Number:
    """Bytes on one rank of a stage of what takes `each` bytes a parameter and is sharded as the optimizer is."""
    part, copy = trained_stage_parameters(module, at, stage), StateBytes(0.0, 0.0, each)
    dense = zero_sharded_bytes(part.layers + part.embedding_head, copy, at, accounting, at.data_ranks)
    return dense.optimizer + zero_sharded_bytes(part.experts, copy, at, accounting, at.edp).optimizer


def update_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> Number:
    """Bytes beside model states behind the last pass, of a step on an optimizer shard: temporaries of its arithmetic;
    a float32 copy of gradients where they are narrower, for which these may be freed; or before it, of the root unit's
    reduction.
    """
    copied = 0.0 if accounting.gradient_bytes >= 4.0 or at.full_precision else 4.0
    each = copied + accounting.update_bytes
    arithmetic = optimizer_shard_bytes(module, at, accounting, stage, each) if each else 0.0
    if copied and accounting.releases_gradients:
        freed = np.where(np.asarray(at.zero) < 3, zero_state_bytes(module, at, accounting, stage).gradients, 0.0)
        arithmetic = np.maximum(0.0, arithmetic - freed)
    if not accounting.root_unit:
        return arithmetic
    return np.maximum(arithmetic, root_reduction_bytes(module, at, accounting, stage))


def root_reduction_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> Number:
    """Bytes while ZeRO-3 reduces the gradients of a root unit, which has all that is outside of the layers: it is
    gathered, and its gradients are there as computed, as they are sent, and as a shard of their sum.

    On an H200 it was the peak of steps with recomputation: 18.91 GiB beside weights and moments, this and the sum of
    gradients 18.91.
    """
    held, trained = (of(module, at, stage).embedding_head for of in (stage_parameters, trained_stage_parameters))
    gradient = max(at.element, accounting.gradient_bytes)
    reduced = at.element + gradient + gradient / zero_shards(at, at.data_ranks)
    return np.where(np.asarray(at.zero) >= 3, at.element * held + reduced * trained, 0.0)


def gathered_width(at: LayoutColumns, accounting: MemoryCoefficients) -> float:
    """Bytes of a trained parameter that is gathered, and of its gradient as reduced."""
    return at.element + max(at.element, accounting.gradient_bytes)


def gathered_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, stage: Number) -> Number:
    """Bytes of buckets of gradients, and under ZeRO-3 what is gathered on each rank: the layer in use and the next, the
    head, and the gradients of the largest of these as computed and as reduced; or the whole stage, where it stays
    gathered.
    """
    buckets = np.where(at.data_ranks > 1, accounting.bucket_gib * GIB, 0.0) if accounting.bucket_gib else 0.0
    if not np.any(np.asarray(at.zero) >= 3):
        return buckets
    part, cast = stage_parameters(module, at, stage), at.element
    layer = np.maximum.reduce(
        [sum(rank_layer_parameters(module, kind, at)) for kind in stage_layers(module, at, stage)]
    )
    end = np.minimum(part.embedding_head, table_parameters(module) / at.tp)
    gradient = max(cast, accounting.gradient_bytes)
    trained = trained_stage_parameters(module, at, stage)
    graded = layer if module.trained == "all" else 0.0  # adapters are next to nothing
    once = cast * (2 * layer + end) + (cast + gradient) * np.maximum(graded, np.minimum(end, trained.embedding_head))
    if accounting.keeps_gathered:
        stays = gathered_width(at, accounting) * sum(trained) + cast * (sum(part) - sum(trained))
        once = np.where(np.asarray(at.pp) > 1, np.maximum(stays, once), once)
    return np.where(np.asarray(at.zero) >= 3, once, 0.0) + buckets
