"""Alternatives to the plain parts of a decoder: experts for its MLP, latent attention for plain heads, state spaces and
linear attention for attention, tables of matrices for layers that no block describes.
"""

from typing import Literal

from planner.specs.base import Amount, Count, Index, Name, Positive, Spec
from planner.specs.layers.embedding_head import ShardedDim


class Experts(Spec, kw_only=True):
    """A mixture of experts: a router sends each token to `topk` of `experts` MLPs (Shazeer et al., arXiv 1701.06538).

    Experts are gated and biased as the decoder's dense MLP is.
    """

    experts: Count
    topk: Count
    ffn: Count  # width of one expert
    shared_ffn: Index = 0  # total width of the experts that process every token (arXiv 2401.06066); 0: none
    dense_layers: Index = 0  # number of first layers with the dense MLP
    router_bias: bool = False  # a bias for each expert, learned, or adjusted to balance them (arXiv 2408.15664)
    every: Count = 1  # of the layers after these, each `every`-th has experts, counted from 1
    # Tokens of a rank's slice that an expert accepts: ceil(capacity·tokens·topk/experts); None: all (dropless). Tokens
    # over the capacity skip the expert (arXiv 2006.16668).
    capacity: Positive | None = None
    balance: Amount = 0.0  # weight of the load-balance loss (arXiv 2101.03961, eq. 4); 0: none
    scores: Literal["softmax", "sigmoid"] = "softmax"  # turns the router's logits into probabilities
    normalised: bool = True  # the weights of the chosen experts are divided by their sum
    scale: Positive = 1.0  # of the routed experts' sum, beside the shared ones (arXiv 2412.19437, section 2.1.2)
    # Experts are in groups of neighbours, and a token's are chosen from the `group_topk` groups whose two best scores
    # add up to most (arXiv 2412.19437, section 2.1.2).
    groups: Count = 1
    group_topk: Count = 1
    shared_gate: bool = False  # the shared experts' output is multiplied by the sigmoid of a vector's product
    # Width that routed experts read and write, between two projections of a layer (arXiv 2512.20856); 0: hidden.
    latent: Index = 0
    # Tokens of each expert, a row for each layer or step that was counted: prices take the fullest rank's load from
    # them. Empty: it is assumed.
    counts: tuple[tuple[Amount, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.topk > self.experts:
            raise ValueError(f"topk {self.topk} is more than the {self.experts} experts | lower topk")
        if self.experts % self.groups or self.group_topk > self.groups:
            what = f"{self.group_topk} of {self.groups} groups cannot be chosen among {self.experts} experts"
            raise ValueError(f"{what} | groups that divide the experts, and at most all of them")
        if self.shared_gate and not self.shared_ffn:
            raise ValueError("shared_gate is of shared experts | add shared_ffn, or leave it out")
        for number, counted in enumerate(self.counts):
            if len(counted) != self.experts:
                raise ValueError(
                    f"row {number} has {len(counted)} counts, of {self.experts} experts | one for each expert"
                )
            if not sum(counted) > 0:
                raise ValueError(f"row {number} counts no tokens | leave it out")


class LatentAttentionShape(Spec, kw_only=True):
    """Multi-head latent attention: queries, keys and values from compressed vectors (DeepSeek-V2, arXiv 2405.04434,
    §2.1).

    A head's query and key are nope_dim + rope_dim wide; the key's rotary part is shared by all heads.
    """

    q_rank: Index = 0  # width of the compressed queries; 0: queries are not compressed
    kv_rank: Count
    rope_dim: Count
    nope_dim: Count
    value_dim: Count


class StateSpace(Spec, kw_only=True):
    """A selective state space as in Mamba-2 (arXiv 2405.21060, §7.1): a scan over a document in place of attention.

    Head h has the state S [head_dim, state], zero before a document. Of the t-th token's x [head_dim], B and C [state]
    and time step d: S_t = exp(d_t A_h) S_{t-1} + d_t x_t B_tᵀ, y_t = S_t C_t + D_h x_t, with A_h = -exp(A_log_h) and
    d_t = softplus(projected + dt_bias_h), clamped to step_min … step_max. One projection computes z, x, B, C and d of a
    token, in this order; x, B and C pass through a depthwise causal convolution and SiLU. After the scan y · silu(z) is
    divided by its root mean square within each group of heads, scaled by channel, and projected.
    """

    heads: Count
    head_dim: Count  # channels of a head
    state: Count  # state size of a channel
    groups: Count = 1  # groups of consecutive heads: each has one B and one C, and a norm of its own
    conv: Count = 4  # width of the convolution in tokens, including the token itself
    conv_bias: bool = True
    bias: bool = False  # of input and output projection
    chunk: Count = 128  # tokens of a chunk of the scan: the FLOPs depend on it, the results do not
    step_min: Amount = 0.0  # of time steps, as is step_max
    step_max: Positive | None = None  # None: no upper limit

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ValueError(f"heads {self.heads} is not divisible by groups {self.groups} | change one")
        if self.step_max is not None and self.step_max < self.step_min:
            raise ValueError(f"step_max {self.step_max:g} is below step_min {self.step_min:g} | change one")

    @property
    def inner_width(self) -> int:
        """Channels of all heads: the width of z, x and the output projection's input."""
        return self.heads * self.head_dim

    @property
    def projection_widths(self) -> tuple[int, ...]:
        """Widths of z, x, B, C and the time steps in the output of the input projection."""
        shared_state = self.groups * self.state
        return self.inner_width, self.inner_width, shared_state, shared_state, self.heads

    @property
    def convolution_channels(self) -> int:
        """Channels of the convolution: x, B and C together."""
        return self.inner_width + 2 * self.groups * self.state


class LinearAttention(Spec, kw_only=True):
    """The gated delta rule in place of attention (arXiv 2412.06464): a scan over a document.

    Head h has the state S [key_dim, value_dim], zero before a document. Of the t-th token's q and k [key_dim], v
    [value_dim], decay a and step b: S_t = a_t S_{t-1} + b_t k_t (v_t - a_t S_{t-1}ᵀ k_t)ᵀ, y_t = S_tᵀ q_t. One
    projection computes q, k, v, an output gate z, b and a of a token; q, k and v pass through a depthwise causal
    convolution and SiLU. After the scan y is divided by its root mean square within each head, multiplied by silu(z),
    and projected. Value heads share the queries and keys of `key_heads`.
    """

    heads: Count  # value heads, each with a state
    key_heads: Count
    key_dim: Count  # of a head
    value_dim: Count
    conv: Count = 4  # width of the convolution in tokens, including the token itself
    chunk: Count = 64  # tokens of a chunk of the scan: the FLOPs depend on it, the results do not

    def __post_init__(self) -> None:
        if self.heads % self.key_heads:
            raise ValueError(f"heads {self.heads} is not divisible by key_heads {self.key_heads} | change one")

    @property
    def inner_width(self) -> int:
        """Channels of all heads' values: the width of v, z and the output projection's input."""
        return self.heads * self.value_dim

    @property
    def convolution_channels(self) -> int:
        """Channels of the convolution: q, k and v together."""
        return 2 * self.key_heads * self.key_dim + self.inner_width

    @property
    def projected_width(self) -> int:
        """Width of q, k, v, z, and of each head's step and decay."""
        return self.convolution_channels + self.inner_width + 2 * self.heads

    @property
    def scan_products(self) -> float:
        """Products of two numbers per token and head: of Q keys with each other, twice the solution of a triangle of
        them, and with queries; and of states with keys, queries and values (arXiv 2412.06464, section 3.3).
        """
        within = self.chunk * (2 * self.key_dim + self.key_dim + 2 * self.value_dim)
        return within + 3.0 * self.key_dim * self.value_dim


class Indexer(Spec, kw_only=True):
    """Chooses which tokens latent attention attends to: those of the `topk` highest scores, of light heads over all
    tokens before, whose queries come from the compressed ones (DeepSeek Sparse Attention, arXiv 2512.02556).
    """

    heads: Count
    dim: Count  # of a head; all heads share one key
    topk: Count  # tokens attended to


class Matrix(Spec, kw_only=True):
    """`count` matrices (outputs, inputs) of equal shape; a token is multiplied by `used` of them."""

    outputs: Count
    inputs: Count
    count: Count = 1
    used: Amount = 1.0
    shard: ShardedDim = ""  # the dim that tp shards


class LayerTable(Spec, kw_only=True):
    """What layers of one kind have, beside routed experts."""

    name: Name
    matrices: tuple[Matrix, ...]
    vectors: Index = 0  # parameters of norms, biases and all else that is no matrix: whole on each rank of tp
    flops: Amount = 0.0  # per token and forward, beside those of matrices and attention: of scans, convolutions
    attends: bool = True
    experts: bool = False  # the module's routed experts, behind a router
    heads: Count | None = None  # None: those of the module, as are the next two
    kv_heads: Count | None = None
    head_dim: Count | None = None
    window: Count | None = None  # tokens that a token attends to, including itself; None: all before it

    @property
    def parameters(self) -> int:
        """The number of parameters without those of routed experts and their router."""
        return self.vectors + sum(matrix.count * matrix.outputs * matrix.inputs for matrix in self.matrices)
