"""A Mamba-2 block (arXiv 2405.21060, §7.1) over packed documents.

The equations are beside its shape, in `specs/layers/components.py`. A rank has whole documents: each
starts with a zero state, and its convolution sees nothing before it. The ranks of a tensor-parallel block share the
groups of heads: between the input and output projections, all work is within one group.

Activations between the projections are many times as large as their outputs and involve no weight matrices, so they are
always recomputed in the backward pass.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.autograd.recompute import recompute_along, run_recomputed
from planner.models.batch import Batch
from planner.models.kernels.chunked_scan import ScanInputs, state_space_scan
from planner.models.layers.linear import column_parallel, row_parallel
from planner.models.sharding import EqualShard, ModuleShard, ParameterSplit
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.layers.components import StateSpace


class StateSpaceBlock(nn.Module):
    """A Mamba-2 block with its input and output projections."""

    def __init__(self, spec: Module, space: StateSpace, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        self.part = part = shard.tp
        local = with_fields(space, heads=part.size(space.heads), groups=part.size(space.groups))
        self.space = local  # with the heads and groups of this rank
        self.into = column_parallel(
            spec.hidden, sum(space.projection_widths), space.bias, dtype, part, space.projection_widths
        )
        self.convolution = CausalConvolution(space.projection_widths[1:4], space.conv, space.conv_bias, dtype, part)
        self.decay_log = nn.Parameter(torch.empty(local.heads, dtype=dtype))
        self.skip = nn.Parameter(torch.empty(local.heads, dtype=dtype))
        self.step_bias = nn.Parameter(torch.empty(local.heads, dtype=dtype))
        self.splits = {name: (ParameterSplit(0, part, "tp"),) for name in ("decay_log", "skip", "step_bias")}
        self.norm = GatedNorm(local, spec.norm_eps, dtype, part)
        self.out = row_parallel(space.inner_width, spec.hidden, space.bias, dtype, part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape."""
        tensor = batch.tensor_parallel_for(self.part)
        x = recompute_along(tensor.all_gather, x)
        inner = run_recomputed(self.scan_projected, self.into(x), batch.cu_seqlens.diff().tolist())
        return self.out(inner, tensor)  # type: ignore[no-any-return]

    def scan_projected(self, projected: Tensor, lengths: list[int]) -> Tensor:
        """Map projected inputs `(tokens, sum of widths)` to the output projection's input `(tokens, inner)`."""
        space = self.space
        gate, convolved, steps = torch.split(projected, [space.inner_width, space.convolution_channels, space.heads], 1)
        convolved = F.silu(self.convolution(convolved, lengths))
        values, inputs_outputs = torch.split(
            convolved, [space.inner_width, space.convolution_channels - space.inner_width], 1
        )
        values = torch.unflatten(values, 1, (space.groups, -1, space.head_dim))
        inputs, outputs = torch.unflatten(inputs_outputs, 1, (2, space.groups, space.state)).unbind(1)
        steps = torch.unflatten(self.time_steps(steps), 1, (space.groups, -1))
        decays = -self.decay_log.to(steps.dtype).exp().view(space.groups, -1)
        y = state_space_scan(ScanInputs(values, inputs, outputs, steps, decays), lengths, space.chunk)
        y = y + values * self.skip.to(y.dtype).view(space.groups, -1, 1)
        return self.norm(y.flatten(1), gate)  # type: ignore[no-any-return]

    def time_steps(self, projected: Tensor) -> Tensor:
        """Sizes of time steps `(tokens, heads)`, in float32 or better, from their projection of that shape."""
        wide = torch.promote_types(projected.dtype, torch.float32)
        return F.softplus(projected.to(wide) + self.step_bias.to(wide)).clamp(self.space.step_min, self.space.step_max)


class CausalConvolution(nn.Module):
    """A causal depthwise convolution over the tokens of each document."""

    def __init__(self, sections: tuple[int, ...], width: int, bias: bool, dtype: torch.dtype, part: EqualShard) -> None:
        """`sections`: channels of each part of the projected, which ranks share one by one; `width` in tokens."""
        super().__init__()
        channels = part.size(sum(sections))
        self.weight = nn.Parameter(torch.empty(channels, 1, width, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(channels, dtype=dtype)) if bias else None
        split = ParameterSplit(0, part, "tp", sections)
        self.splits = dict.fromkeys(("weight", "bias") if bias else ("weight",), (split,))

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        """Map x `(tokens, channels)` to the same shape."""
        taps = self.weight[:, 0].unbind(1)
        padding = len(taps) - 1  # rows of zeros before each document
        documents = torch.repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
        rows = (torch.arange(len(x)) + documents * padding).to(x.device)  # the first row that each token sees
        width = len(x) + len(lengths) * padding
        padded = x.new_zeros(width + padding, x.shape[1]).index_copy(0, rows + padding, x)
        y = sum((tap * padded[lag : lag + width] for lag, tap in enumerate(taps)), torch.zeros_like(padded[:width]))[
            rows
        ]
        return y if self.bias is None else y + self.bias


class GatedNorm(nn.Module):
    """The RMS norm of y · silu(z) within each group, in float32 or better."""

    def __init__(self, local: StateSpace, eps: float, dtype: torch.dtype, part: EqualShard) -> None:
        super().__init__()
        self.groups, self.eps = local.groups, eps
        self.weight = nn.Parameter(torch.empty(local.inner_width, dtype=dtype))
        self.splits = {"weight": (ParameterSplit(0, part, "tp"),)}

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:
        """Map y and gate z, each `(tokens, inner)`, to the same shape."""
        gated = y * F.silu(gate.to(y.dtype))
        grouped = torch.unflatten(gated, 1, (self.groups, -1))
        normed = F.rms_norm(grouped, grouped.shape[2:], eps=self.eps).flatten(1)
        return (self.weight * normed).to(gate.dtype)
