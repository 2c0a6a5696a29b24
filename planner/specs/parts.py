"""Parts that a decoder may have in place of the plain ones: experts for its MLP, latent attention for its heads, state
spaces for its attention.
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
    shared_ffn: Index = 0  # width of all experts together that see every token (arXiv 2401.06066); 0: none
    dense_layers: Index = 0  # first layers, which have the dense MLP
    router_bias: bool = False  # one number an expert, learned, or moved to balance them (arXiv 2408.15664)
    every: Count = 1  # of the layers after them, each `every`-th has experts, counted from 1
    # What of its choices an expert keeps, per rank's slice of tokens: ceil(capacity·tokens·topk/experts); None: all
    # of them (dropless). The rest of a token's choices are as if they had not been made (arXiv 2006.16668).
    capacity: Positive | None = None
    balance: Amount = 0.0  # weight of the load-balance loss (arXiv 2101.03961, eq. 4); 0: none
    scores: Literal["softmax", "sigmoid"] = "softmax"  # what makes probabilities of the router's logits
    normalised: bool = True  # the weights of the experts chosen are divided by their sum

    def __post_init__(self) -> None:
        if self.topk > self.experts:
            raise ValueError(f"topk {self.topk} is more than the {self.experts} experts that there are | lower topk")


class Latent(Spec, kw_only=True):
    """Multi-head latent attention: queries, keys and values from narrow vectors (DeepSeek-V2, arXiv 2405.04434, §2.1).

    A head's query and key are nope_dim + rope_dim wide, of which all heads share the key's rotary part.
    """

    q_rank: Index = 0  # width of the compressed queries; 0: they are projected at once
    kv_rank: Count
    rope_dim: Count
    nope_dim: Count
    value_dim: Count


class StateSpace(Spec, kw_only=True):
    """A selective state space as Mamba-2 has it (arXiv 2405.21060, §7.1): a scan over a document in place of attention.

    Head h keeps S [head_dim, state], zero in front of a document. Of the t-th token's x [head_dim], B and C [state] and
    time step d: S_t = exp(d_t A_h) S_{t-1} + d_t x_t B_tᵀ, y_t = S_t C_t + D_h x_t, with A_h = -exp(A_log_h) and
    d_t = softplus(projected + dt_bias_h), held between step_min and step_max. One projection makes z, x, B, C and d
    of a token, in this order; x, B and C pass through a causal convolution, channel by channel, and SiLU. Behind the
    scan y · silu(z) is divided by its root mean square within each group of heads, scaled by channel, and projected.
    """

    heads: Count
    head_dim: Count  # channels of a head
    state: Count  # numbers that a channel keeps
    groups: Count = 1  # of consecutive heads: each has one B and one C, and is normed by itself
    conv: Count = 4  # tokens that the convolution sees, the token itself among them
    conv_bias: bool = True
    bias: bool = False  # of the projections in and out
    chunk: Count = 128  # tokens of a chunk of the scan: the work depends on it, the numbers do not
    step_min: Amount = 0.0  # of time steps, as is step_max
    step_max: Positive | None = None  # None: no end

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ValueError(f"heads {self.heads} is not divisible by groups {self.groups} | change one")
        if self.step_max is not None and self.step_max < self.step_min:
            raise ValueError(f"step_max {self.step_max:g} is below step_min {self.step_min:g} | change one")

    @property
    def inner(self) -> int:
        """Channels of all heads: as wide are z, x and what is projected out."""
        return self.heads * self.head_dim

    @property
    def projected(self) -> tuple[int, ...]:
        """Widths of z, x, B, C and the time steps, that one projection makes."""
        made = self.groups * self.state
        return self.inner, self.inner, made, made, self.heads

    @property
    def convolved(self) -> int:
        """Channels of x, B and C together."""
        return self.inner + 2 * self.groups * self.state
