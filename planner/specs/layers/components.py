"""Alternatives to the plain parts of a decoder: experts for its MLP, latent attention for plain heads, state spaces for
attention.
"""

from typing import Literal

from planner.specs.base import Amount, Count, Index, Positive, Spec


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
    # Tokens of each expert, a row for each layer or step that was counted: prices take the fullest rank's load from
    # them. Empty: it is assumed.
    counts: tuple[tuple[Amount, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.topk > self.experts:
            raise ValueError(f"topk {self.topk} is more than the {self.experts} experts | lower topk")
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
