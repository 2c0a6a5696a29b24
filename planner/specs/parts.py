"""Parts that a decoder may have in place of the plain ones: experts for its MLP, latent attention for its heads."""

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
