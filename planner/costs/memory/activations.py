"""Bytes of activations that a layer keeps from forward to backward, per token of a rank's share of the sequence.

For a plain GPT this is equation 2 of Korthikanti et al. (arXiv 2205.05198): 34·h and 5·a·s; tensor parallelism shards
what is between the products, sequence parallelism the rest too (equations 3 and 4). A product keeps its input, in one
byte under fp8.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.costs.compute.expert_load import counted_load
from planner.costs.layout_columns import LayoutColumns, Number
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, LayerKind, block_entry, kind_blocks
from planner.specs.layers.head_widths import head_dim, kv_heads, value_dim
from planner.specs.parallelism import RecomputedPart, part_code
from planner.specs.shapes import attention_output_width, query_width, value_width

FLOAT32_BYTES = 4.0  # bytes of a float32
MASK_BYTES = 1.0  # bytes of an element's dropout mask


# Bytes of an element of a product's input, where it is cast: in NVFP4 half a byte, and a byte of scale for sixteen.
PRODUCT_BYTES = {"fp8": 1.0, "fp4": 0.5625}


class LayerActivations(NamedTuple):
    """Bytes per token that a layer keeps with the layout's selective recomputation, and without any."""

    with_recompute: Number
    without_recompute: Number


class ElementShares(NamedTuple):
    """Bytes of an element, and the shares of it that one tp rank has."""

    plain: float  # bytes
    product: float  # bytes of an element of a product's input
    inside: Number  # share of what is between products: 1/tp
    outside: Number  # share of norms and residuals: 1/tp with sequence parallelism


def element_shares(at: LayoutColumns) -> ElementShares:
    """Bytes and shares of elements at this precision, tp and sequence parallelism."""
    plain = at.element
    inside = 1.0 / np.asarray(at.tp)
    outside = np.where(np.asarray(at.sequence_parallel, dtype=bool), inside, 1.0)
    return ElementShares(plain, PRODUCT_BYTES.get(at.dtype, plain), inside, outside)


def layer_activations(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients
) -> LayerActivations:
    """Bytes per token that one layer of a kind keeps, per token of `at.tokens`."""
    nothing: frozenset[str] = frozenset()
    everything = kept_block_bytes(module, kind, at, accounting, nothing)
    if at.recomputed_parts and accounting.selective == "ops":
        return LayerActivations(alternate_bytes(module, kind, element_shares(at)), everything)
    return LayerActivations(kept_block_bytes(module, kind, at, accounting, at.recomputed_parts), everything)


def kept_block_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of one layer, less what backward recomputes: of each block its input, its norm's output, and its
    own.
    """
    total: Number = 0.0
    module = module.of_kind(kind)
    for block in kind_blocks(kind):
        own = own_block_bytes(module, block, at, accounting, recomputed)
        total = total + outer_block_bytes(module, block, at, accounting, recomputed) + own
    return total


def outer_block_bytes(
    module: Module, block: Block, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of a block's input, and of its norm's output, which its first products multiply."""
    shares = element_shares(at)
    again = "norm" in recomputed and not (accounting.fused_norms and norm_is_fused(module, block))
    normed = module.hidden * shares.product * shares.outside if keeps_inputs(module, block) and not again else 0.0
    mask = module.hidden * MASK_BYTES * shares.outside if accounting.dropout else 0.0
    return input_bytes(module, at) + mask + normed


def own_block_bytes(
    module: Module, block: Block, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of what a block keeps beyond its input and its norm's output."""
    if block == "mlp" and "mlp" in recomputed:
        return 0.0
    return block_entry(block, BLOCK_BYTES, "the activations")(module, at, accounting, recomputed)


def part_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients
) -> dict[RecomputedPart, Number]:
    """Bytes per token of one layer by the parts that offload may name, with the layout's selective recomputation: of
    attention all but its input; of norms the inputs of blocks and of their first products; of MLPs and experts what is
    between. A dense MLP whose norm is one layer with its first product keeps both its inputs with it. State spaces and
    logits of routers are of no part, nor is anything where every second product's output is kept.
    """
    found: dict[RecomputedPart, Number] = {}
    module = module.of_kind(kind)
    by_operator, recomputed = at.recomputed_parts and accounting.selective == "ops", at.recomputed_parts
    for block in () if by_operator else kind_blocks(kind):
        if block in UNNAMED_BLOCKS:
            continue
        own = own_block_bytes(module, block, at, accounting, recomputed)
        own_parts: dict[RecomputedPart, Number] = {"attention": own}
        if block == "mlp":
            own_parts = {"mlp": own}
        elif block == "experts":
            besides = recomputed | {"mlp"}, recomputed | {"mlp", "moe"}
            dense, router = (own_block_bytes(module, block, at, accounting, each) for each in besides)
            own_parts = {"mlp": own - dense, "moe": dense - router}
        norm: RecomputedPart = "mlp" if block == "mlp" and accounting.fused_norms else "norm"
        own_parts[norm] = own_parts.get(norm, 0.0) + outer_block_bytes(module, block, at, accounting, recomputed)
        for part, size in own_parts.items():
            found[part] = found.get(part, 0.0) + size
    return found


def offloadable_part_bytes(
    module: Module, kind: LayerKind, at: LayoutColumns, accounting: MemoryCoefficients, kept: Number
) -> Number:
    """Bytes per token that one layer can offload of the kinds that a layout names; where it names none, all that is
    `kept`.
    """
    if not np.any(at.offloaded_parts):
        return kept
    codes, total = np.asarray(at.offloaded_parts).astype(np.int64), 0.0
    for part, size in part_bytes(module, kind, at, accounting).items():
        total = total + (codes & part_code([part]) > 0) * size
    return np.where(codes == 0, kept, total)


def keeps_inputs(module: Module, block: Block) -> bool:
    """Whether a block's first products keep their input: gradients of their weights, or of adapters, need it."""
    lora, moe = module.adapters, module.routed_experts
    if lora is None or (block == "experts" and not (moe and moe.shared_ffn)):
        return module.trained == "all"
    return ("mlp" if block in ("mlp", "experts") else "qkv") in lora.parts


def norm_is_fused(module: Module, block: Block) -> bool:
    """Whether Transformer Engine has a block's norm in one layer with its first product: not with latent attention, and
    not in front of a router (Megatron-Core's gpt_layer_specs). Recomputation skips such norms.
    """
    return block == "mlp" or (block == "attention" and module.latent_attention is None)


def input_bytes(module: Module, at: LayoutColumns) -> Number:
    """Bytes per token of a block's input; of a layer that is recomputed in full only the first block's is kept."""
    shares = element_shares(at)
    return module.hidden * shares.plain * shares.outside


def attention_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of queries, keys, values and output; and of the attention matrix, where it is materialised."""
    shares = element_shares(at)
    queries, values = query_width(module), attention_output_width(module)
    latent = module.latent_attention
    groups = module.heads if latent else kv_heads(module)
    projected = queries + groups * (head_dim(module) + value_dim(module))
    total = projected * shares.plain * shares.inside
    if module.has_attention_gate:  # the gate, and attention's result before it
        total = total + 2 * queries * shares.plain * shares.inside
    if module.token_indexer:  # its key, queries and weights have no gradients here; the chosen tokens are kept
        total = total + module.token_indexer.topk * FLOAT32_BYTES
    if latent:  # compressed vectors, before and after their norms
        compressed = latent.q_rank + latent.kv_rank
        total = total + ((compressed + latent.rope_dim) * shares.plain + compressed * shares.product) * shares.outside
    if shares.product < shares.plain:
        total = (
            total + values * shares.product * shares.inside
        )  # input of the output projection, besides attention's result
    if not ("attention" in recomputed and shares.product < shares.plain):
        total = total + values * shares.plain * shares.inside
    if "attention" in recomputed:
        return total
    return total + module.heads * shares.inside * (
        FLOAT32_BYTES if accounting.flash else score_bytes_per_query(module, at, accounting)
    )


def cross_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of cross attention: queries, output, keys and values of what is read; of the matrix, where it is
    materialised; and of what is read, which each rank of tp has whole, once for all layers that read it.
    """
    shares, queries = element_shares(at), module.heads * head_dim(module)
    keys = 2 * kv_heads(module) * head_dim(module) * at.cross_reads
    readers = sum(each for kind, each in kind_counts(module).items() if "cross_attention" in kind_blocks(kind))
    of_stage = np.maximum(1.0, readers / np.asarray(at.pp))  # each stage has what is read once
    read = module.cross_attention_width * at.cross_reads / of_stage
    kept = ((2 * queries + keys) * shares.inside + read) * shares.plain
    if "attention" in recomputed:
        return kept
    matrix = at.seq * at.cross_pairs * ((2 * shares.plain + MASK_BYTES) if accounting.dropout else shares.plain)
    return kept + module.heads * shares.inside * (FLOAT32_BYTES if accounting.flash else matrix)


def score_bytes_per_query(module: Module, at: LayoutColumns, accounting: MemoryCoefficients) -> Number:
    """Bytes of one row of one head's matrix: softmax, and with dropout its mask and its output."""
    plain = element_shares(at).plain
    windows = {module.window_of(layer) for layer in range(module.layers)}
    keys = at.seq if None in windows else np.minimum(at.seq, max(filter(None, windows)))
    return keys * ((2 * plain + MASK_BYTES) if accounting.dropout else plain)


def dense_mlp_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of the dense MLP."""
    return mlp_bytes(module, module.ffn, element_shares(at), accounting)


def mlp_bytes(
    module: Module, width: int, shares: ElementShares, accounting: MemoryCoefficients, inside: Number | None = None
) -> Number:
    """Bytes per token of an MLP of this width, less its input: what its activation function and its down projection
    keep.
    """
    entering = shares.product if accounting.fp8_pointwise else shares.plain
    unfused = shares.plain if module.gated and not accounting.fused else 0.0  # the activated gate
    trained = keeps_inputs(module, "mlp") if inside is None else module.trained == "all"  # routed ones have no adapters
    leaving = shares.product if trained else 0.0
    each = (2 if module.gated else 1) * entering + unfused + leaving
    return width * each * (shares.inside if inside is None else inside)


def moe_bytes(module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]) -> Number:
    """Bytes per token of router and experts. A rank sends its tokens' copies to the experts' ranks, and gets as many;
    where etp ranks shard an expert, each of them gets the copies of all of them for its share of the width.
    """
    shares, moe = element_shares(at), module.routed_experts
    assert moe is not None
    total = 2 * moe.experts * FLOAT32_BYTES * shares.outside  # logits and probabilities
    shared = (
        mlp_bytes(module, moe.shared_ffn, shares, accounting) if moe.shared_ffn and "mlp" not in recomputed else 0.0
    )
    total = total + shared
    if "moe" in recomputed:
        return total
    copies = moe.topk * shares.outside * counted_load(module, at, accounting.imbalance)
    outer = moe.latent or module.hidden
    if moe.latent:  # what is projected, and what is projected back
        total = total + 2 * moe.latent * shares.plain * shares.outside
    if module.trained == "all":
        total = total + copies * np.asarray(at.etp) * outer * shares.product  # experts' input
    total = total + copies * mlp_bytes(
        module, moe.ffn, shares, accounting, 1.0
    )  # etp times the copies, 1/etp of the width
    return total + copies * outer * shares.plain  # their output, which the router's weights multiply


def state_space_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of a state space: what is projected in, the scan's output, and what is projected out; the scan is
    recomputed. Without fused kernels also what is convolved and activated, and gated and normed in float32.
    """
    shares, space = element_shares(at), module.ssm
    assert space is not None
    projected = (
        space.inner_width + space.convolution_channels + space.heads + space.inner_width
    ) * shares.plain + space.inner_width * shares.product
    unfused = (
        0.0
        if accounting.fused
        else 2 * space.convolution_channels * shares.plain + 2 * space.inner_width * FLOAT32_BYTES
    )
    return (projected + unfused) * shares.inside


def linear_attention_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of linear attention: what is projected in, convolved and scanned, and what is projected out; and
    each chunk's state in float32.
    """
    shares, shape = element_shares(at), module.linear_attention_shape
    assert shape is not None
    kept = shape.projected_width + shape.convolution_channels + shape.inner_width
    states = shape.heads * shape.key_dim * shape.value_dim / shape.chunk * FLOAT32_BYTES
    return (kept * shares.plain + shape.inner_width * shares.product + states) * shares.inside


def table_bytes(
    module: Module, at: LayoutColumns, accounting: MemoryCoefficients, recomputed: frozenset[str]
) -> Number:
    """Bytes per token of a described layer: outputs and inputs of its matrices but for those of the hidden size, which
    norms and sums have; and the residual that a second block would keep.
    """
    shares, table, hidden = element_shares(at), module.layer_table, module.hidden
    total: Number = hidden * (shares.plain + shares.product) * shares.outside
    for each in table.matrices:
        read = (each.outputs != hidden) * shares.plain * each.outputs
        read = read + (each.inputs != hidden) * shares.product * each.inputs
        total = total + each.used * read * (shares.inside if each.shard else 1.0)
    flash = module.heads * FLOAT32_BYTES if "attention" not in recomputed and table.attends else 0.0
    return total + flash * shares.inside


def alternate_bytes(module: Module, kind: LayerKind, shares: ElementShares) -> Number:
    """Bytes per token where every second product's output is kept, from the first on, and attention's: of q, k, v,
    output and the MLP's products, q, v, the gate and the MLP's output (selective recomputation by operator).
    """
    module = module.of_kind(kind)
    return shares.plain * sum(
        (block_entry(block, ALTERNATE, "the activations")(module, shares) for block in kind_blocks(kind)), 0.0
    )


def alternate_attention(module: Module, shares: ElementShares) -> Number:
    """Elements per token: queries, values, attention's result and its output projection."""
    inside = query_width(module) + value_width(module) + attention_output_width(module)
    return inside * shares.inside + module.hidden * shares.outside


def alternate_cross(module: Module, shares: ElementShares) -> Number:
    """Elements per token: queries, attention's result and its output projection."""
    return 2 * module.heads * head_dim(module) * shares.inside + module.hidden * shares.outside


def alternate_mlp(module: Module, shares: ElementShares) -> Number:
    """Elements per token: the gate and the MLP's output."""
    return module.ffn * shares.inside + module.hidden * shares.outside


def alternate_experts(module: Module, shares: ElementShares) -> Number:
    """Elements per token: the gates and outputs of the routed and shared experts."""
    moe = module.routed_experts
    assert moe is not None
    return (moe.topk * moe.ffn + moe.shared_ffn) * shares.inside + moe.topk * module.hidden * shares.outside


BlockBytes = Callable[[Module, LayoutColumns, MemoryCoefficients, frozenset[str]], Number]
BLOCK_BYTES: dict[Block, BlockBytes] = {
    "attention": attention_bytes,
    "cross_attention": cross_bytes,
    "mlp": dense_mlp_bytes,
    "experts": moe_bytes,
    "state_space": state_space_bytes,
    "linear_attention": linear_attention_bytes,
    "matrices": table_bytes,
    "attending_matrices": table_bytes,
}


def alternate_state_space(module: Module, shares: ElementShares) -> Number:
    """Elements per token: the input projection and the output."""
    space = module.ssm
    assert space is not None
    return (
        space.inner_width + space.convolution_channels + space.heads
    ) * shares.inside + module.hidden * shares.outside


def alternate_linear_attention(module: Module, shares: ElementShares) -> Number:
    """Elements per token: the input projection and the output."""
    shape = module.linear_attention_shape
    assert shape is not None
    return shape.projected_width * shares.inside + module.hidden * shares.outside


def alternate_table(module: Module, shares: ElementShares) -> Number:
    """Elements per token: outputs of half of the matrices, and attention's result."""
    matrices = module.layer_table.matrices
    widths = sum(each.used * each.outputs * (shares.inside if each.shard == "outputs" else 1.0) for each in matrices)
    return widths / 2.0 + attention_output_width(module) * shares.inside * module.layer_table.attends


UNNAMED_BLOCKS = ("state_space", "linear_attention", "matrices", "attending_matrices")  # of no part that layouts name
ALTERNATE: dict[Block, Callable[[Module, ElementShares], Number]] = {
    "attention": alternate_attention,
    "cross_attention": alternate_cross,
    "mlp": alternate_mlp,
    "experts": alternate_experts,
    "state_space": alternate_state_space,
    "linear_attention": alternate_linear_attention,
    "matrices": alternate_table,
    "attending_matrices": alternate_table,
}
