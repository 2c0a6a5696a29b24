"""What one rank computes of one layer in one forward pass: its matrix products, its attention, its passes over memory.

Shapes follow Megatron's split (arXiv 1909.08053, 2205.05198): heads and the MLP's width over tp, tokens over cp, and
norms and residuals over tp as well under sequence parallelism. Experts (arXiv 2504.14960) lie on a mesh of their own.
"""

from dataclasses import dataclass

import numpy as np

from planner.costs.static.setup import Number, Setup
from planner.specs.layers import LayerKind
from planner.specs.model import Decoder, Module, head_dim, kv_heads
from planner.specs.shapes import end_flops, key_width, query_width


@dataclass(frozen=True, slots=True)
class Matmul:
    """`count` products of m×k with k×n."""

    m: Number
    n: Number
    k: Number
    count: Number = 1
    grouped: bool = False  # one of several experts'
    wide: bool = True  # in the layer's own precision; else not in fp8

    @property
    def flops(self) -> Number:
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def weights(self) -> Number:
        return self.n * self.k * self.count


@dataclass(frozen=True, slots=True)
class Attention:
    """The core: scores, softmax, weighted sum."""

    pairs: Number  # query-key pairs of one head, on this rank
    heads: Number  # on this rank
    width: Number  # of a head, mean of keys' and values'
    length: Number  # of the sequence that a kernel sees
    head_dim: int
    dtype: str = "bf16"

    @property
    def flops(self) -> Number:
        return 4.0 * self.pairs * self.heads * self.width


@dataclass(frozen=True, slots=True)
class Work:
    """Of one layer, or of what stands at a model's ends."""

    matmuls: tuple[Matmul, ...]
    attention: Attention | None
    moved: Number  # bytes read and written by what is bound by memory: norms, residuals, activations
    kernels: int  # that one pass launches


def layer_work(module: Module, kind: LayerKind, setup: Setup, window: int | None = None) -> Work:
    """Forward work of one layer on one rank, for one micro-batch."""
    tokens = setup.tokens
    spread = np.where(setup.sequence_parallel, setup.tp, 1)  # of norms and residuals
    inner, moved, kernels = attention_part(module, setup, tokens)
    moved = moved + setup.element * tokens * module.hidden * 10.0 / spread  # two norms in and out, two residual sums
    if kind == "moe" and isinstance(module, Decoder) and module.moe:
        mlp, more, launched = expert_part(module, setup, tokens)
    else:
        mlp, more, launched = mlp_part(module, module.ffn, setup)
    return Work((*inner, *mlp), core(module, setup, window), moved + more, kernels + launched + 6)


def attention_part(module: Module, setup: Setup, tokens: Number) -> tuple[list[Matmul], Number, int]:
    """The projections around attention, and the rotation of its heads."""
    queries, keys = query_width(module), key_width(module)
    latent = module.latent if isinstance(module, Decoder) else None
    moved = setup.element * tokens * 2.0 * (queries + keys) / setup.tp
    if latent is None:
        qkv = Matmul(tokens, queries / setup.tp + 2.0 * keys_held(module, setup), module.hidden)
        return [qkv, Matmul(tokens, module.hidden, queries / setup.tp)], moved, 4
    narrow = np.where(setup.sequence_parallel, tokens / setup.tp, tokens)  # the down projections are replicated
    heads = module.heads / setup.tp
    down = [Matmul(narrow, latent.kv_rank + latent.rope_dim, module.hidden)]
    if latent.q_rank:
        down.append(Matmul(narrow, latent.q_rank, module.hidden))
    up = [
        Matmul(tokens, heads * (latent.nope_dim + latent.rope_dim), latent.q_rank or module.hidden),
        Matmul(tokens, heads * (latent.nope_dim + latent.value_dim), latent.kv_rank),
        Matmul(tokens, module.hidden, heads * latent.value_dim),
    ]
    return down + up, moved * 2.0, 10


def keys_held(module: Module, setup: Setup) -> Number:
    """Width of one rank's keys: where tp has more ranks than there are key heads, each is repeated on several."""
    return np.maximum(kv_heads(module) / setup.tp, 1.0) * head_dim(module)


def core(module: Module, setup: Setup, window: int | None) -> Attention:
    """Causal attention has half of all pairs, a window at most its width for each query."""
    length = setup.seq
    pairs = length * (length / 2.0 if isinstance(module, Decoder) else length)
    if window is not None:
        seen = np.minimum(length, float(window))
        pairs = seen * (length - seen / 2.0 if isinstance(module, Decoder) else length)
    latent = module.latent if isinstance(module, Decoder) else None
    size = head_dim(module)
    width = (latent.nope_dim + latent.rope_dim + latent.value_dim) / 2.0 if latent else size
    size = latent.nope_dim + latent.rope_dim if latent else size
    heads = module.heads / setup.tp
    dtype = "float32" if setup.precision == "float32" else "bf16"
    return Attention(setup.micro_batch * pairs / setup.cp, heads, width, length / setup.cp, size, dtype)


def mlp_part(module: Module, width: Number, setup: Setup) -> tuple[list[Matmul], Number, int]:
    """Up (and gate), the activation, down."""
    ways, tokens, held = 2 if module.gated else 1, setup.tokens, width / setup.tp
    products = [Matmul(tokens, ways * held, module.hidden), Matmul(tokens, module.hidden, held)]
    return products, setup.element * tokens * (ways + 1.0) * held, 3


def expert_part(module: Decoder, setup: Setup, tokens: Number) -> tuple[list[Matmul], Number, int]:
    """Router, permutation, the experts of this rank, and those that every token has.

    Each rank dispatches its own tokens; what reaches it is as much in the mean, times etp, whose ranks share experts.
    """
    moe = module.moe
    assert moe is not None
    own = np.where(setup.sequence_parallel, tokens / setup.tp, tokens)
    copies = own * moe.topk * setup.etp
    local = moe.experts / setup.ep
    ways = 2 if module.gated else 1
    each = copies / local
    products = [
        Matmul(own, moe.experts, module.hidden, wide=False),
        Matmul(each, ways * moe.ffn / setup.etp, module.hidden, local, grouped=True),
        Matmul(each, module.hidden, moe.ffn / setup.etp, local, grouped=True),
    ]
    moved = setup.element * copies * ((ways + 1.0) * moe.ffn / setup.etp + 4.0 * module.hidden)  # copied in and out
    kernels = 14
    if moe.shared_ffn:
        shared, more, launched = mlp_part(module, moe.shared_ffn, setup)
        products, moved, kernels = products + shared, moved + more, kernels + launched
    return products, moved, kernels


def head_work(module: Module, setup: Setup) -> Work:
    """Logits over this rank's part of the vocabulary, and their loss in float32; or what an encoder has at its ends."""
    share = end_flops(module) / (2.0 * module.hidden) / setup.tp
    product = Matmul(setup.tokens, share, module.hidden, wide=False)
    if not isinstance(module, Decoder):
        return Work((product,), None, setup.tokens * module.hidden * setup.element * 4.0, 6)
    return Work((product,), None, setup.tokens * share * (setup.element + 4.0 * 4), 8)
