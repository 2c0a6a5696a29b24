"""Linear attention by the gated delta rule (arXiv 2412.06464) over packed documents, as in Qwen3-Next.

The equations are beside its shape, in `specs/layers/components.py`. A rank has whole documents: each starts with a zero
state, and its convolution sees nothing before it. The ranks of a tensor-parallel block share the key heads, with the
value heads that read them; the rows of projections stand by key head. What is between the projections is recomputed in
the backward pass, as in layers/state_space.py.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.autograd.recompute import recompute_along, run_recomputed
from planner.models.batch import Batch
from planner.models.kernels.delta_rule import DeltaInputs, gated_delta_rule
from planner.models.layers.linear import column_parallel, row_parallel
from planner.models.layers.state_space import CausalConvolution
from planner.models.sharding import ModuleShard, ParameterSplit
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.layers.components import LinearAttention

LENGTH_EPS = 1e-6  # added to the squared length that queries and keys are divided by


class LinearAttentionBlock(nn.Module):
    """The gated delta rule with its input and output projections."""

    def __init__(self, spec: Module, shape: LinearAttention, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        self.part = part = shard.tp
        self.shape = with_fields(shape, heads=part.size(shape.heads), key_heads=part.size(shape.key_heads))
        keys = shape.key_heads * shape.key_dim
        self.into = column_parallel(spec.hidden, 2 * keys + 2 * shape.inner_width, False, dtype, part)
        self.steps = column_parallel(spec.hidden, 2 * shape.heads, False, dtype, part)
        self.convolution = CausalConvolution((keys, keys, shape.inner_width), shape.conv, False, dtype, part)
        self.decay_log = nn.Parameter(torch.empty(self.shape.heads, dtype=dtype))
        self.step_bias = nn.Parameter(torch.empty(self.shape.heads, dtype=dtype))
        self.splits = {name: (ParameterSplit(0, part, "tp"),) for name in ("decay_log", "step_bias")}
        self.norm = nn.RMSNorm(shape.value_dim, eps=spec.norm_eps, dtype=dtype)
        self.out = row_parallel(shape.inner_width, spec.hidden, False, dtype, part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape."""
        tensor = batch.tensor_parallel_for(self.part)
        x = recompute_along(tensor.all_gather, x)
        inner = run_recomputed(self.scan_projected, self.into(x), self.steps(x), batch.cu_seqlens.diff().tolist())
        return self.out(inner, tensor)  # type: ignore[no-any-return]

    def scan_projected(self, projected: Tensor, steps: Tensor, lengths: list[int]) -> Tensor:
        """Map queries, keys, values and gates `(tokens, sum of widths)`, and steps and decays `(tokens, 2 heads)`, to
        the output projection's input `(tokens, inner)`.
        """
        shape, shared = self.shape, self.shape.heads // self.shape.key_heads
        widths = [shape.key_dim, shape.key_dim, shared * shape.value_dim, shared * shape.value_dim]
        *parts, gate = torch.split(torch.unflatten(projected, 1, (shape.key_heads, -1)), widths, 2)
        convolved = F.silu(self.convolution(torch.cat([part.flatten(1) for part in parts], 1), lengths))
        keys = shape.key_heads * shape.key_dim
        q, k, v = torch.split(convolved, [keys, keys, shape.inner_width], 1)
        wide = torch.promote_types(projected.dtype, torch.float32)
        q, k = (self.unit(torch.unflatten(each.to(wide), 1, (shape.key_heads, -1)), shared) for each in (q, k))
        update, decay = (each.flatten(1) for each in torch.unflatten(steps, 1, (shape.key_heads, 2, -1)).unbind(2))
        log_decays = -self.decay_log.to(wide).exp() * F.softplus(decay.to(wide) + self.step_bias.to(wide))
        values = torch.unflatten(v, 1, (shape.heads, -1))
        scanned = DeltaInputs(q * shape.key_dim**-0.5, k, values, update.sigmoid(), log_decays)
        y = gated_delta_rule(scanned, lengths, shape.chunk)
        gates = torch.unflatten(gate.flatten(1), 1, (shape.heads, -1))
        normed = F.rms_norm(y, y.shape[2:], eps=self.norm.eps) * self.norm.weight.to(y.dtype)
        return (normed * F.silu(gates.to(y.dtype))).flatten(1).to(projected.dtype)

    def unit(self, x: Tensor, shared: int) -> Tensor:
        """Vectors x `(tokens, key heads, keys)` of length one, for each value head: `(tokens, heads, keys)`."""
        return (x * (x.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt()).repeat_interleave(shared, 1)
