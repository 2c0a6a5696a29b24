"""Bytes that a layer keeps from forward to backward for one token of a rank's share of the sequence.

For a plain GPT this is equation 2 of Korthikanti et al. (arXiv 2205.05198): 34·h and 5·a·s; tensor parallelism splits
what is between the products, sequence parallelism the rest too (equations 3 and 4). A product keeps its input, in one
byte under fp8.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.costs.columns import Columns, Number
from planner.specs.accounting import Accounting
from planner.specs.layers import Module
from planner.specs.layers.blocks import Block, LayerKind, blocks, said_of
from planner.specs.layers.heads import head_dim, kv_heads, value_dim

SINGLE = 4.0  # bytes of a float32
MASK = 1.0  # of an element that may be dropped


class Kept(NamedTuple):
    """Bytes per token: of a layer that is not recomputed whole, and of the same with nothing recomputed."""

    partly: Number
    whole: Number


class Split(NamedTuple):
    """How many bytes an element takes, and the share of a rank."""

    plain: float
    product: float  # of a product's input
    inside: Number  # between products: 1/tp
    outside: Number  # norms and residuals: 1/tp with sequence parallelism


def split(at: Columns) -> Split:
    plain = at.element
    inside = 1.0 / np.asarray(at.tp)
    outside = np.where(np.asarray(at.sequence_parallel, dtype=bool), inside, 1.0)
    return Split(plain, 1.0 if at.dtype == "fp8" else plain, inside, outside)


def layer_bytes(module: Module, kind: LayerKind, at: Columns, accounting: Accounting) -> Kept:
    """Of one layer of a kind, per token of `at.tokens`."""
    nothing: frozenset[str] = frozenset()
    whole = all_bytes(module, kind, at, accounting, nothing)
    if at.parts and accounting.selective == "ops":
        return Kept(alternate_bytes(module, kind, split(at)), whole)
    return Kept(all_bytes(module, kind, at, accounting, at.parts), whole)


def all_bytes(module: Module, kind: LayerKind, at: Columns, accounting: Accounting, again: frozenset[str]) -> Number:
    """Of one layer, without what is made again in backward: of each block its input, its norm's output, and its own."""
    ways, total = split(at), 0.0
    normed = 0.0 if "norm" in again else module.hidden * ways.product * ways.outside  # a product's input
    mask = module.hidden * MASK * ways.outside if accounting.dropout else 0.0
    for block in blocks(kind):
        total = total + input_bytes(module, at) + mask
        if not (block == "mlp" and "mlp" in again):
            total = total + normed + said_of(block, BLOCKS, "the activations")(module, at, accounting, again)
    return total


def input_bytes(module: Module, at: Columns) -> Number:
    """Of a block's input; the first block's is all that a layer keeps that is recomputed whole."""
    ways = split(at)
    return module.hidden * ways.plain * ways.outside


def attention_bytes(module: Module, at: Columns, accounting: Accounting, again: frozenset[str]) -> Number:
    """Of queries, keys, values and output; and of the matrix of weights, where it exists."""
    ways = split(at)
    queries, values = module.heads * head_dim(module), module.heads * value_dim(module)
    latent = module.compressed
    groups = module.heads if latent else kv_heads(module)
    projected = queries + groups * (head_dim(module) + value_dim(module))
    total = projected * ways.plain * ways.inside
    if latent:  # narrow vectors as they come down, and as their norms give them to the way up
        narrow = latent.q_rank + latent.kv_rank
        total = total + ((narrow + latent.rope_dim) * ways.plain + narrow * ways.product) * ways.outside
    if ways.product < ways.plain:
        total = total + values * ways.product * ways.inside  # what the output's product keeps, beside attention's own
    if not ("attention" in again and ways.product < ways.plain):
        total = total + values * ways.plain * ways.inside
    if "attention" in again:
        return total
    return total + module.heads * ways.inside * (SINGLE if accounting.flash else scores(module, at, accounting))


def cross_bytes(module: Module, at: Columns, accounting: Accounting, again: frozenset[str]) -> Number:
    """Of queries, what attention gives, and keys and values of what is read; and of the weights, where they exist."""
    ways, queries = split(at), module.heads * head_dim(module)
    keys = 2 * kv_heads(module) * head_dim(module) * at.reads
    kept = (2 * queries + keys) * ways.plain * ways.inside
    if "attention" in again:
        return kept - queries * ways.plain * ways.inside
    matrix = at.seq * at.reads * ((2 * ways.plain + MASK) if accounting.dropout else ways.plain)
    return kept + module.heads * ways.inside * (SINGLE if accounting.flash else matrix)


def scores(module: Module, at: Columns, accounting: Accounting) -> Number:
    """Bytes of one row of one head's matrix: softmax, and with dropout its mask and its output."""
    plain = split(at).plain
    windows = {module.window_of(layer) for layer in range(module.layers)}
    keys = at.seq if None in windows else np.minimum(at.seq, max(filter(None, windows)))
    return keys * ((2 * plain + MASK) if accounting.dropout else plain)


def dense_bytes(module: Module, at: Columns, accounting: Accounting, again: frozenset[str]) -> Number:
    """Of the dense MLP."""
    return mlp_bytes(module, module.ffn, split(at), accounting)


def mlp_bytes(module: Module, width: int, ways: Split, accounting: Accounting, inside: Number | None = None) -> Number:
    """Of an MLP of this width, but for its own input: what its pointwise function and its way out keep."""
    entering = ways.product if accounting.fp8_pointwise else ways.plain
    unfused = ways.plain if module.gated and not accounting.fused else 0.0  # the activated gate
    each = (2 if module.gated else 1) * entering + unfused + ways.product
    return width * each * (ways.inside if inside is None else inside)


def moe_bytes(module: Module, at: Columns, accounting: Accounting, again: frozenset[str]) -> Number:
    """Of router and experts. A rank sends its tokens' copies to the experts' ranks, and gets as many; where etp ranks
    split an expert, each of them gets all copies of the others and a part of the width.
    """
    ways, moe = split(at), module.routed
    assert moe is not None
    total = 2 * moe.experts * SINGLE * ways.outside  # logits and probabilities
    shared = mlp_bytes(module, moe.shared_ffn, ways, accounting) if moe.shared_ffn and "mlp" not in again else 0.0
    total = total + shared
    if "moe" in again:
        return total
    rows = moe.topk * ways.outside * accounting.imbalance
    total = total + rows * np.asarray(at.etp) * module.hidden * ways.product  # experts' input
    total = total + rows * mlp_bytes(module, moe.ffn, ways, accounting, 1.0)  # etp times the rows, 1/etp of the width
    return total + rows * module.hidden * ways.plain  # their output, which the router's weights multiply


def state_space_bytes(module: Module, at: Columns, accounting: Accounting, again: frozenset[str]) -> Number:
    """Of a state space: what is projected in, what the scan gives, and what is projected out; the scan is made again.
    Where no kernel is fused, what is convolved and activated, and gated and normed in float32.
    """
    ways, space = split(at), module.recurrent
    assert space is not None
    projected = (space.inner + space.convolved + space.heads + space.inner) * ways.plain + space.inner * ways.product
    unfused = 0.0 if accounting.fused else 2 * space.convolved * ways.plain + 2 * space.inner * SINGLE
    return (projected + unfused) * ways.inside


def alternate_bytes(module: Module, kind: LayerKind, ways: Split) -> Number:
    """Where each second product's output is kept, from the first on, and attention's: of q, k, v, output, and of the
    MLP's products, q, v, the gate and the MLP's output.
    """
    return ways.plain * sum((said_of(block, ALTERNATE, "the activations")(module, ways) for block in blocks(kind)), 0.0)


def alternate_attention(module: Module, ways: Split) -> Number:
    """Queries, values, what attention gives, and its output."""
    inside = module.heads * (head_dim(module) + value_dim(module)) + kv_heads(module) * value_dim(module)
    return inside * ways.inside + module.hidden * ways.outside


def alternate_cross(module: Module, ways: Split) -> Number:
    """Queries, what attention gives, and its output."""
    return 2 * module.heads * head_dim(module) * ways.inside + module.hidden * ways.outside


def alternate_mlp(module: Module, ways: Split) -> Number:
    return module.ffn * ways.inside + module.hidden * ways.outside


def alternate_experts(module: Module, ways: Split) -> Number:
    moe = module.routed
    assert moe is not None
    return (moe.topk * moe.ffn + moe.shared_ffn) * ways.inside + moe.topk * module.hidden * ways.outside


Keeps = Callable[[Module, Columns, Accounting, frozenset[str]], Number]
BLOCKS: dict[Block, Keeps] = {
    "attention": attention_bytes,
    "cross_attention": cross_bytes,
    "mlp": dense_bytes,
    "experts": moe_bytes,
    "state_space": state_space_bytes,
}


def alternate_state_space(module: Module, ways: Split) -> Number:
    space = module.recurrent
    assert space is not None
    return (space.inner + space.convolved + space.heads) * ways.inside + module.hidden * ways.outside


ALTERNATE: dict[Block, Callable[[Module, Split], Number]] = {
    "attention": alternate_attention,
    "cross_attention": alternate_cross,
    "mlp": alternate_mlp,
    "experts": alternate_experts,
    "state_space": alternate_state_space,
}
