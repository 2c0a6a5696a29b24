"""Work of one rank in one forward pass over one layer: matrix products, attention, memory traffic.

Shapes follow Megatron's sharding (arXiv 1909.08053, 2205.05198): heads and the MLP's width over tp, tokens over cp, and
norms and residuals over tp as well under sequence parallelism. Experts (arXiv 2504.14960) have a mesh of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.costs.layout_columns import LayoutColumns, Number
from planner.specs.layers import Module, layer_kinds
from planner.specs.layers.blocks import Block as Name
from planner.specs.layers.blocks import LayerKind, attends, block_entry, kind_blocks, only_reads
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.shapes import key_width, query_width
from planner.specs.trained_parameters import AdaptableMatrix, adapted_matrices

HALF_BYTES = 2.0  # of an element of activations between products in fp8


@dataclass(frozen=True, slots=True)
class Matmul:
    """`count` products of m×k with k×n."""

    m: Number
    n: Number
    k: Number
    count: Number = 1
    grouped: bool = False  # grouped GEMM over several experts
    part: str = ""  # what selective recomputation recomputes it with (specs/parallelism.py, RecomputedPart)
    has_weights: bool = True  # one factor is weights; else both are activations, and neither is kept for backward
    trained: bool = True  # the weights have gradients
    layer_precision: bool = True  # in the layer's own precision; else never in fp8
    joined: int = 1  # products of one input, as gate and up, that are one where a framework fuses the MLP
    cast: Number = 1.0  # share of the tokens that this rank casts to fp8: its own, where others' are gathered after it

    @property
    def flops(self) -> Number:
        """FLOPs of a forward."""
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def weights(self) -> Number:
        """Weights of the products on this rank."""
        return self.n * self.k * self.count if self.has_weights else 0.0


@dataclass(frozen=True, slots=True)
class AttentionCore:
    """The core of attention: scores, softmax, weighted sum."""

    pairs: Number  # query-key pairs of one head, on this rank
    heads: Number  # on this rank
    width: Number  # of a head, mean of key and value width
    length: Number  # tokens of the sequence that a kernel works on
    head_dim: int
    dtype: str = "bf16"
    causal: bool = False  # half of all pairs are masked, and not among `pairs`

    @property
    def flops(self) -> Number:
        """FLOPs of a forward."""
        return 4.0 * self.pairs * self.heads * self.width


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Work of one layer, or of what is outside the layers."""

    matmuls: tuple[Matmul, ...]
    attention: AttentionCore | None
    cross_attention: AttentionCore | None  # cross attention
    index: AttentionCore | None  # an indexer's scores of all pairs
    memory_bytes: Number  # bytes that kernels bound by memory read and write: norms, residuals, activations
    kernels: int  # launched by one pass

    @property
    def expert_activation_bytes(self) -> Number:
        """Of `memory_bytes`, what the activation reads from the first product of routed experts and writes for the
        second one.
        """
        grouped = [product for product in self.matmuls if product.grouped]
        if not grouped:
            return 0.0
        up, down = grouped
        return HALF_BYTES * up.count * up.m * (up.n + down.k)


def kinds_and_windows(module: Module) -> Iterator[tuple[LayerKind, int | None, float]]:
    """The kinds of layers of a module, each with its window of attention and its share of all layers."""
    kinds = Counter((kind, module.window_of(index)) for index, kind in enumerate(layer_kinds(module)))
    for (kind, window), count in sorted(kinds.items(), key=str):
        yield kind, window, count / module.layers


class BlockWork(NamedTuple):
    """Work of one block of a layer, without its norm and residual."""

    matmuls: tuple[Matmul, ...]
    memory_bytes: Number
    kernels: int


def layer_work(module: Module, kind: LayerKind, at: LayoutColumns, window: int | None = None) -> LayerWork:
    """Forward work of one layer on one rank, for one micro-batch."""
    names, at, module = kind_blocks(kind), reading_columns(kind, at), module.of_kind(kind)
    each = [block_entry(block, BLOCK_WORK, "the work")(module, at) for block in names]
    shards = np.where(at.sequence_parallel, at.tp, 1)  # of norms and residuals
    residual = at.element * at.tokens * module.hidden * 5.0 * len(names) / shards  # a norm in and out, a residual sum
    if module.trained != "all":
        each = [
            *map(frozen_block, each),
            *(adapter_block(module, matrix, at) for matrix in adapted_matrices(module, kind)),
        ]
    return LayerWork(
        tuple(product for block in each for product in block.matmuls),
        attention_core(module, at, window) if attends(kind) else None,
        cross_attention_core(module, at) if "cross_attention" in names else None,
        index_core(module, at) if attends(kind) and module.token_indexer else None,
        sum((block.memory_bytes for block in each), residual),
        sum(block.kernels for block in each) + 3 * len(names),
    )


def frozen_block(block: BlockWork) -> BlockWork:
    """The work of a block whose weights have no gradients."""
    return block._replace(matmuls=tuple(replace(product, trained=False) for product in block.matmuls))


def adapter_block(module: Module, matrix: AdaptableMatrix, at: LayoutColumns) -> BlockWork:
    """A low-rank adapter beside a matrix: down to its rank, up again, and the sum of both outputs. Products so thin are
    bound by memory, so they count as the bytes that they move.
    """
    lora = module.adapters
    assert lora is not None
    inputs, outputs = matrix.on_rank(at.tp)
    return BlockWork((), at.element * at.tokens * (inputs + 2.0 * lora.rank + 3.0 * outputs), 3)


def reading_columns(kind: LayerKind, at: LayoutColumns) -> LayoutColumns:
    """The columns of the tokens that a layer works on: where it has nothing but cross attention, of those that are in
    sequences which read something.
    """
    if not only_reads(kind):
        return at
    each = 1.0 / np.where(np.asarray(at.readers) > 0, at.readers, 1.0)
    reads, pairs = at.cross_reads * each, at.cross_pairs * each
    return replace(at, micro_batch=at.micro_batch * at.readers, cross_reads=reads, cross_pairs=pairs, readers=1.0)


def attention_block(module: Module, at: LayoutColumns) -> BlockWork:
    """The projections around attention, and the rotation of its heads."""
    tokens = at.tokens
    queries, keys = query_width(module), key_width(module)
    latent = module.latent_attention
    moved = at.element * tokens * 2.0 * (queries + keys) / at.tp
    if latent is None:
        width = queries / at.tp + 2.0 * np.maximum(kv_heads(module) / at.tp, 1.0) * head_dim(module)
        if module.has_attention_gate:
            width, moved = width + queries / at.tp, moved * 1.5
        qkv = Matmul(tokens, width, module.hidden, cast=cast_share(at))
        return BlockWork((qkv, Matmul(tokens, module.hidden, queries / at.tp)), moved, 4)
    narrow = np.where(at.sequence_parallel, tokens / at.tp, tokens)  # the down projections are replicated
    heads = module.heads / at.tp
    down = [Matmul(narrow, latent.kv_rank + latent.rope_dim, module.hidden)]
    if latent.q_rank:
        down.append(Matmul(narrow, latent.q_rank, module.hidden))
    up = [
        Matmul(tokens, heads * (latent.nope_dim + latent.rope_dim), latent.q_rank or module.hidden),
        Matmul(tokens, heads * (latent.nope_dim + latent.value_dim), latent.kv_rank),
        Matmul(tokens, module.hidden, heads * latent.value_dim),
    ]
    if module.token_indexer:
        return BlockWork((*down, *up, *index_products(module, narrow)), moved * 2.0, 16)
    return BlockWork((*down, *up), moved * 2.0, 10)


def index_products(module: Module, tokens: Number) -> tuple[Matmul, ...]:
    """The projections of an indexer, which each rank of tp makes of its own tokens; scores of pairs are apart."""
    indexer, latent = module.token_indexer, module.latent_attention
    assert indexer is not None and latent is not None
    return (
        Matmul(tokens, indexer.heads * indexer.dim, latent.q_rank),
        Matmul(tokens, indexer.dim + indexer.heads, module.hidden),
    )


def cast_share(at: LayoutColumns) -> Number:
    """The share of a gathered input's tokens that a rank casts to fp8: gathers come after the cast (Transformer
    Engine, torchao's float8 all-gather).
    """
    return np.where(at.sequence_parallel, 1.0 / np.asarray(at.tp), 1.0)


def rank_key_width(module: Module, at: LayoutColumns) -> Number:
    """Width of one rank's keys: they are repeated where more ranks shard heads than there are key heads."""
    return np.maximum(kv_heads(module) / (at.tp * at.ulysses), 1.0) * head_dim(module)


def attention_core(module: Module, at: LayoutColumns, window: int | None) -> AttentionCore:
    """Attention of one micro-batch: causal, half of all pairs; within a window, at most its width per query."""
    length = at.seq
    pairs = length * (length / 2.0 if module.causal else length)
    if window is not None:
        width = np.minimum(length, float(window))
        pairs = width * (length - width / 2.0 if module.causal else length)
    latent = module.latent_attention
    size = head_dim(module)
    mean_width = (size + latent.value_dim) / 2.0 if latent else size
    heads = module.heads / (at.tp * at.ulysses)
    dtype = "float32" if at.full_precision else "bf16"
    return AttentionCore(
        at.micro_batch * pairs / at.ring, heads, mean_width, length / at.ring, size, dtype, module.causal
    )


def index_core(module: Module, at: LayoutColumns) -> AttentionCore:
    """An indexer's scores of all pairs of one micro-batch: queries and keys alone, half of an attention's products;
    ranks of tp score their own heads.
    """
    indexer = module.token_indexer
    assert indexer is not None
    pairs = at.micro_batch * at.seq * (at.seq / 2.0 if module.causal else at.seq)
    width = indexer.dim / 2.0
    return AttentionCore(pairs, indexer.heads / at.tp, width, at.seq, indexer.dim, causal=module.causal)


def cross_attention_block(module: Module, at: LayoutColumns) -> BlockWork:
    """Queries of the layer's own tokens, keys and values of what is read, and the output projection."""
    queries, keys = query_width(module) / at.tp, np.maximum(kv_heads(module) / at.tp, 1.0) * head_dim(module)
    products = (
        Matmul(at.tokens, queries, module.hidden),
        Matmul(at.tokens * at.cross_reads, 2.0 * keys, module.cross_attention_width),
        Matmul(at.tokens, module.hidden, queries),
    )
    return BlockWork(products, at.element * at.tokens * 2.0 * queries, 4)


def cross_attention_core(module: Module, at: LayoutColumns) -> AttentionCore:
    """Cross attention of one micro-batch: every token attends to all that its sequence reads."""
    heads, size = module.heads / (at.tp * at.ulysses), head_dim(module)
    pairs = at.micro_batch * at.seq * at.seq * at.cross_pairs
    return AttentionCore(
        pairs / at.ring, heads, size, at.seq / at.ring, size, "float32" if at.full_precision else "bf16"
    )


def dense_mlp_block(module: Module, at: LayoutColumns) -> BlockWork:
    """The dense MLP."""
    return mlp_of_width(module, module.ffn, at)


def mlp_of_width(module: Module, width: Number, at: LayoutColumns) -> BlockWork:
    """An MLP of this width: up (and gate), the activation, down."""
    inputs, tokens, own = 2 if module.gated else 1, at.tokens, width / at.tp
    products = (
        Matmul(tokens, inputs * own, module.hidden, part="mlp", joined=inputs, cast=cast_share(at)),
        Matmul(tokens, module.hidden, own, part="mlp"),
    )
    return BlockWork(products, at.element * tokens * (inputs + 1.0) * own, 3)


def expert_block(module: Module, at: LayoutColumns) -> BlockWork:
    """Router, permutation, the routed experts of this rank, and the shared ones.

    Each rank dispatches its own tokens, and receives as many in the mean, times etp, whose ranks shard each expert.
    """
    moe = module.routed_experts
    assert moe is not None
    own = np.where(at.sequence_parallel, at.tokens / at.tp, at.tokens)
    copies = own * moe.topk * at.etp
    local, outer = moe.experts / at.ep, moe.latent or module.hidden
    inputs = 2 if module.gated else 1
    each = copies / local
    products = (
        Matmul(own, moe.experts, module.hidden, layer_precision=False),
        Matmul(each, inputs * moe.ffn / at.etp, outer, local, grouped=True, part="moe", joined=inputs),
        Matmul(each, outer, moe.ffn / at.etp, local, grouped=True, part="moe"),
    )
    around = (Matmul(own, outer, module.hidden), Matmul(own, module.hidden, outer)) if moe.latent else ()
    moved = at.element * copies * ((inputs + 1.0) * moe.ffn / at.etp + 4.0 * outer)  # copied in and out
    if not moe.shared_ffn:
        return BlockWork(products + around, moved, 14)
    shared = mlp_of_width(module, moe.shared_ffn, at)
    return BlockWork(products + around + shared.matmuls, moved + shared.memory_bytes, 14 + shared.kernels)


def state_space_block(module: Module, at: LayoutColumns) -> BlockWork:
    """The projections, a depthwise convolution, and the scan in chunks of Q tokens (arXiv 2405.21060, §6): C·Bᵀ once
    for each chunk and group; per head the chunk's own output, the state it leaves, and the output from earlier states.
    """
    space = module.ssm
    assert space is not None
    tokens = at.tokens
    inner = space.inner_width / at.tp
    convolved = space.convolution_channels / at.tp
    heads = space.heads / at.tp
    chunk, channels, chunks = space.chunk, space.head_dim, tokens / space.chunk
    projected = inner + convolved + heads
    scanned = (
        Matmul(chunk, chunk, space.state, chunks * np.maximum(1.0, space.groups / at.tp), has_weights=False),
        Matmul(chunk, channels, chunk, chunks * heads, has_weights=False),
        Matmul(space.state, channels, chunk, chunks * heads, has_weights=False),
        Matmul(chunk, channels, space.state, chunks * heads, has_weights=False),
    )
    products = (Matmul(tokens, projected, module.hidden), *scanned, Matmul(tokens, module.hidden, inner))
    moved = at.element * tokens * (3.0 * convolved + 5.0 * inner)  # convolved, scanned, gated and normed
    return BlockWork(products, moved, 10)


def linear_attention_block(module: Module, at: LayoutColumns) -> BlockWork:
    """The projections, a depthwise convolution, and the gated delta rule in chunks of Q tokens (arXiv 2412.06464,
    section 3.3): Q keys with each other, two solutions of a triangle of them, queries with keys and their output; and
    of each chunk what its keys and queries read of the state, and what it adds.
    """
    shape = module.linear_attention_shape
    assert shape is not None
    tokens, inner, heads = at.tokens, shape.inner_width / at.tp, shape.heads / at.tp
    chunk, keys, values, chunks = shape.chunk, shape.key_dim, shape.value_dim, tokens / shape.chunk * heads
    scanned = (
        Matmul(chunk, chunk, keys, 2 * chunks, has_weights=False),
        Matmul(chunk, keys, chunk, chunks, has_weights=False),
        Matmul(chunk, values, chunk, 2 * chunks, has_weights=False),
        Matmul(chunk, values, keys, 2 * chunks, has_weights=False),
        Matmul(keys, values, chunk, chunks, has_weights=False),
    )
    read = Matmul(tokens, shape.projected_width / at.tp, module.hidden)
    products = (read, *scanned, Matmul(tokens, module.hidden, inner))
    moved = at.element * tokens * (4.0 * shape.convolution_channels / at.tp + 5.0 * inner)
    return BlockWork(products, moved, 14)


def table_block(module: Module, at: LayoutColumns) -> BlockWork:
    """The matrices of a described layer, each token by those that it uses, and their outputs written and read."""
    products, moved, hidden = [], 0.0, module.hidden
    for each in module.layer_table.matrices:
        outputs, inputs = (
            size / at.tp if each.shard == dim else size
            for dim, size in (("outputs", each.outputs), ("inputs", each.inputs))
        )
        products.append(Matmul(at.tokens * each.used / each.count, outputs, inputs, each.count))
        moved = moved + 2.0 * at.element * at.tokens * each.used * outputs
    if module.layer_table.flops:  # of scans and the like, as products with an intensity of the hidden size
        products.append(Matmul(at.tokens, module.layer_table.flops / (2.0 * hidden) / at.tp, hidden, has_weights=False))
    return BlockWork(tuple(products), moved, 2 * len(products))


BLOCK_WORK: dict[Name, Callable[[Module, LayoutColumns], BlockWork]] = {
    "attention": attention_block,
    "cross_attention": cross_attention_block,
    "mlp": dense_mlp_block,
    "experts": expert_block,
    "state_space": state_space_block,
    "linear_attention": linear_attention_block,
    "matrices": table_block,
    "attending_matrices": table_block,
}


def head_work(module: Module, at: LayoutColumns) -> LayerWork:
    """Logits over this rank's shard of the vocabulary, and the loss in float32; or what an encoder has outside its
    layers.
    """
    products = tuple(
        Matmul(at.tokens, end_share(module, at, trained), module.hidden, layer_precision=False, trained=trained)
        for trained in sorted({*map(module.trains_end, module.embedding_head)}) or (True,)
    )
    if not module.output_vocabulary:
        return LayerWork(products, None, None, None, at.tokens * module.hidden * at.element * 4.0, 6)
    logits = at.tokens * module.predicted_tokens * (module.output_vocabulary / at.tp)
    return LayerWork(products, None, None, None, logits * (at.element + 4.0 * 4), 8 * module.predicted_tokens)


def end_share(module: Module, at: LayoutColumns, trained: bool) -> Number:
    """Width of one product with an input of the hidden width that does the work of all trained, or all frozen, matrices
    outside the layers, on one rank.
    """
    ends = (end for end in module.embedding_head if module.trains_end(end) is trained)
    return sum(end.flops / (2.0 * module.hidden) / (at.tp if end.sharded_dim else 1.0) for end in ends)
