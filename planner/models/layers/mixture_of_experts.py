"""A mixture of experts in place of a layer's MLP: a router sends each token to the k experts of highest score (Shazeer
et al., arXiv 1701.06538), and shared experts may see every token (DeepSeekMoE, arXiv 2401.06066).
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.autograd.deferred_weights import deferrable_linear, deferrable_multiply
from planner.models.autograd.recompute import run_part
from planner.models.batch import Batch
from planner.models.kernels.grouped_gemm import GroupedProduct
from planner.models.layers.linear import replicated_linear
from planner.models.layers.mlp import ACTIVATIONS, Mlp
from planner.models.sharding import ALL_EXPERTS, ExpertShard, ModuleShard, ParameterSplit
from planner.models.token_dispatch import LOCAL_DISPATCHER, ExpertChoice
from planner.specs.layers import Module
from planner.specs.layers.components import Experts


class MixtureOfExperts(nn.Module):
    """A mixture of experts, over whatever ranks the batch's dispatcher reaches.

    Where experts have a capacity, a choice beyond it contributes nothing; the weights of the others do not change
    (GShard, arXiv 2006.16668, algorithm 1).
    """

    def __init__(self, spec: Module, moe: Experts, layer: int, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        self.moe, self.layer = moe, layer
        self.router = Router(spec.hidden, moe, dtype)
        self.experts = ExpertMlps(spec, moe, dtype, shard.experts.get(layer, ALL_EXPERTS))
        self.shared = Mlp(spec, moe.shared_ffn, dtype, shard) if moe.shared_ffn else None
        narrow = moe.latent > 0  # experts work in a width of their own
        self.latent_down = replicated_linear(spec.hidden, moe.latent, False, dtype) if narrow else None
        self.latent_up = replicated_linear(moe.latent, spec.hidden, False, dtype) if narrow else None
        self.shared_gate = nn.Parameter(torch.empty(1, spec.hidden, dtype=dtype)) if moe.shared_gate else None

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape."""
        probabilities, choice = self.router(x)
        within_capacity = (
            choice
            if self.moe.capacity is None
            else drop_over_capacity(choice, self.moe.capacity, batch.capacity_slices)
        )
        dispatch = batch.dispatchers.get(self.layer, LOCAL_DISPATCHER)
        routed = x if self.latent_down is None else self.latent_down(x)
        y = run_part("moe", dispatch.dispatch, routed, within_capacity, self.experts)
        y = y if self.latent_up is None else self.latent_up(y)
        if self.shared is not None:
            shared = run_part("mlp", self.shared, x, batch)
            y = y + (shared if self.shared_gate is None else shared * F.linear(x, self.shared_gate).sigmoid())
        if self.moe.balance:
            counts = dispatch.all_reduce_counts(choice.counts())
            loss = self.moe.balance * load_balancing_loss(probabilities, counts)
            y = batch.auxiliary.attach(y, self.layer, loss)
        return y


class Router(nn.Module):
    """The router of one layer, computed in float32 or better.

    With softmax scores the bias is a term of the logits, and learned (arXiv 2508.10925). With sigmoid scores it affects
    the choice alone, and no loss changes it (arXiv 2408.15664, as in DeepSeek-V3).
    """

    def __init__(self, hidden: int, moe: Experts, dtype: torch.dtype) -> None:
        super().__init__()
        self.moe = moe
        self.weight = nn.Parameter(torch.empty(moe.experts, hidden, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(moe.experts, dtype=dtype)) if moe.router_bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, ExpertChoice]:
        """Map x `(tokens, hidden)` to probabilities `(tokens, experts)` and the choice of each token."""
        softmax = self.moe.scores == "softmax"
        wide = torch.promote_types(x.dtype, torch.float32)  # in bfloat16 the differences between scores are rounding
        bias = self.bias.to(wide) if softmax and self.bias is not None else None
        logits = deferrable_linear(x.to(wide), self.weight.to(wide), bias)
        scores = logits.softmax(-1) if softmax else logits.sigmoid()
        ranked = scores if softmax or self.bias is None else scores.detach() + self.bias.detach()
        ranked = ranked if self.moe.groups == 1 else within_best_groups(ranked, self.moe)
        # Not topk: of equal scores it may take any, and not the same ones for other batches.
        experts = ranked.detach().sort(dim=-1, descending=True, stable=True).indices[:, : self.moe.topk]
        weights = scores.gather(1, experts)
        if self.moe.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights * self.moe.scale if self.moe.scale != 1 else weights
        return scores if softmax else scores / scores.sum(-1, keepdim=True), ExpertChoice(
            experts, weights, self.moe.experts
        )


def within_best_groups(scores: Tensor, moe: Experts) -> Tensor:
    """Scores `(tokens, experts)`, those outside of each token's best groups minus infinity: of the groups whose two
    best scores add up to most (arXiv 2412.19437, section 2.1.2).
    """
    each = scores.detach().view(len(scores), moe.groups, -1)  # (tokens, groups, experts of one)
    best = each.topk(min(2, each.shape[2]), dim=2).values.sum(2)
    chosen = best.sort(dim=1, descending=True, stable=True).indices[:, : moe.group_topk]
    outside = torch.ones_like(best, dtype=torch.bool).scatter(1, chosen, False)
    return each.masked_fill(outside[:, :, None], -math.inf).flatten(1)


class ExpertMlps(nn.Module):
    """The local experts, each an MLP like the dense one.

    Where experts are sharded over etp, each rank has a shard of the inner width, and of the last bias: its output is a
    summand.
    """

    are_experts = True  # their parameters are sharded on a mesh of their own

    def __init__(self, spec: Module, moe: Experts, dtype: torch.dtype, shard: ExpertShard) -> None:
        super().__init__()
        count, width, hidden = shard.ep.size(moe.experts), shard.etp.size(moe.ffn), moe.latent or spec.hidden
        ep_split, etp_split = ParameterSplit(0, shard.ep, "ep"), ParameterSplit(1, shard.etp, "etp")
        self.etp = shard.etp
        self.splits: dict[str, tuple[ParameterSplit, ...]] = {}

        def parameter(name: str, *shape: int, across: ParameterSplit) -> nn.Parameter:
            self.splits[name] = (ep_split, across)
            return nn.Parameter(torch.empty(count, *shape, dtype=dtype))

        input_matrices = ("gate", "up") if spec.gated else ("up",)
        for name in input_matrices:
            setattr(self, name, parameter(name, width, hidden, across=etp_split))
        self.down = parameter("down", hidden, width, across=ParameterSplit(2, shard.etp, "etp"))
        self.biased = spec.bias == "all"
        for name in input_matrices if self.biased else ():
            setattr(self, f"{name}_bias", parameter(f"{name}_bias", width, across=etp_split))
        self.down_bias = parameter("down_bias", shard.etp.size(hidden), across=etp_split) if self.biased else None
        self.gated, self.activation = spec.gated, ACTIVATIONS[spec.mlp_activation]

    def forward(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Rows `(rows, hidden)` sorted by expert, with `sizes` `(experts)` rows each, to the same shape."""
        up = self.project_in("up", rows, sizes)
        activated = self.activation
        wide = activated(self.project_in("gate", rows, sizes)) * up if self.gated else activated(up)
        y = deferrable_multiply(wide, self.down, GroupedProduct(sizes))
        if self.down_bias is None:
            return y
        first, last = self.etp.span(y.shape[1])
        return y + F.pad(bias_rows(self.down_bias, sizes, len(rows)), (first, y.shape[1] - last))

    def project_in(self, name: str, rows: Tensor, sizes: Tensor) -> Tensor:
        """Rows `(rows, hidden)` through the experts' up or gate matrices: `(rows, inner)`."""
        y = deferrable_multiply(rows, getattr(self, name), GroupedProduct(sizes))
        return y + bias_rows(getattr(self, f"{name}_bias"), sizes, len(rows)) if self.biased else y


def bias_rows(biases: Tensor, sizes: Tensor, rows: int) -> Tensor:
    """Biases `(experts, width)` repeated for the expert of each row: `(rows, width)`."""
    return biases.repeat_interleave(sizes, 0, output_size=rows)


def drop_over_capacity(choice: ExpertChoice, capacity: float, slices: Sequence[Tensor]) -> ExpertChoice:
    """Drop choices beyond the experts' capacity: of each slice of t tokens, an expert takes the first
    ceil(capacity·t·k/E), in the order of the slice. `slices` holds the row indices `(t)` of each; without any, all rows
    are one slice.
    """
    within_capacity = torch.ones_like(choice.experts, dtype=torch.bool)
    for rows in slices or (torch.arange(len(within_capacity), device=within_capacity.device),):
        experts = choice.experts[rows]
        chosen = torch.zeros(len(rows), choice.expert_count, dtype=torch.int32, device=within_capacity.device).scatter_(
            1, experts, 1
        )
        ranks = chosen.cumsum(0).gather(1, experts)  # (t, topk): from 1; a token chooses an expert once
        within_capacity[rows] = ranks <= math.ceil(capacity * experts.numel() / choice.expert_count)
    return ExpertChoice(
        choice.experts.where(within_capacity, choice.expert_count), choice.weights, choice.expert_count, dropless=False
    )


def load_balancing_loss(probabilities: Tensor, counts: Tensor) -> Tensor:
    """The load-balancing loss (scalar) summed over these tokens: Switch's (arXiv 2101.03961, eq. 4) times the number of
    tokens.

    It is the sum of E·Σ_e f_e·p_e, where f_e is the share of expert e in all choices of the micro-batch (from `counts`,
    `(experts)`) and p_e a token's probability of it (`probabilities`, `(tokens, experts)`). A token's term is 1 where
    choices or probabilities are uniform. Gradients flow through the probabilities alone.
    """
    shares = counts.to(probabilities.dtype) / counts.sum().clamp(min=1)
    return len(counts) * (probabilities.sum(0) * shares).sum()
