"""A block of Mamba-2 (arXiv 2405.21060, §7.1) over packed documents: what a token keeps of those before it is a state.

The mathematics stand with the shape, in `specs/parts.py`. Documents are whole on a rank: each starts with no state, and
its convolution sees nothing in front of it. The ranks of a tensor-parallel block share out the groups of heads: what
follows the projection in is of one group alone, up to the projection out.

What lies between the projections is many times as large as their outputs, and no matrix of weights takes part in it: it
is made again in the backward pass, always.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.held import Held, Part, Split
from planner.models.linear import column, row
from planner.models.recompute import follow, whole
from planner.models.scan import Scanned, scan
from planner.specs.base import changed
from planner.specs.layers import Module
from planner.specs.parts import StateSpace


class StateSpaceBlock(nn.Module):
    """x [t, hidden] to the same."""

    def __init__(self, spec: Module, space: StateSpace, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        self.part = part = held.tp
        own = changed(space, heads=part.size(space.heads), groups=part.size(space.groups))
        self.space = own  # of this rank
        self.into = column(spec.hidden, sum(space.projected), space.bias, dtype, part, space.projected)
        self.convolution = Convolution(space, own, dtype, part)
        self.decay_log = nn.Parameter(torch.empty(own.heads, dtype=dtype))
        self.skip = nn.Parameter(torch.empty(own.heads, dtype=dtype))
        self.step_bias = nn.Parameter(torch.empty(own.heads, dtype=dtype))
        self.splits = {name: (Split(0, part, "tp"),) for name in ("decay_log", "skip", "step_bias")}
        self.norm = GatedNorm(own, spec.norm_eps, dtype, part)
        self.out = row(space.inner, spec.hidden, space.bias, dtype, part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        tensor = batch.among(self.part)
        x = follow(tensor.gather, x)
        between = whole(self.between, self.into(x), batch.cu_seqlens.diff().tolist())
        return self.out(between, tensor)  # type: ignore[no-any-return]

    def between(self, projected: Tensor, lengths: list[int]) -> Tensor:
        """From the projection in to what is projected out [t, inner]."""
        space = self.space
        gate, convolved, steps = torch.split(projected, [space.inner, space.convolved, space.heads], 1)
        convolved = F.silu(self.convolution(convolved, lengths))
        values, made = torch.split(convolved, [space.inner, space.convolved - space.inner], 1)
        values = torch.unflatten(values, 1, (space.groups, -1, space.head_dim))
        inputs, outputs = torch.unflatten(made, 1, (2, space.groups, space.state)).unbind(1)
        steps = torch.unflatten(self.steps(steps), 1, (space.groups, -1))
        decays = -self.decay_log.to(steps.dtype).exp().view(space.groups, -1)
        y = scan(Scanned(values, inputs, outputs, steps, decays), lengths, space.chunk)
        y = y + values * self.skip.to(y.dtype).view(space.groups, -1, 1)
        return self.norm(y.flatten(1), gate)  # type: ignore[no-any-return]

    def steps(self, projected: Tensor) -> Tensor:
        """Sizes of time steps [t, heads], in float32 or better."""
        wide = torch.promote_types(projected.dtype, torch.float32)
        return F.softplus(projected.to(wide) + self.step_bias.to(wide)).clamp(self.space.step_min, self.space.step_max)


class Convolution(nn.Module):
    """Channel by channel over the tokens before, within each document. x [t, convolved] to the same."""

    def __init__(self, space: StateSpace, own: StateSpace, dtype: torch.dtype, part: Part) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(own.convolved, 1, own.conv, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(own.convolved, dtype=dtype)) if own.conv_bias else None
        split = Split(0, part, "tp", space.projected[1:4])  # x, B and C
        self.splits = dict.fromkeys(("weight", "bias") if own.conv_bias else ("weight",), (split,))

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        taps = self.weight[:, 0].unbind(1)
        before = len(taps) - 1  # rows of zeros in front of each document
        documents = torch.repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
        rows = (torch.arange(len(x)) + documents * before).to(x.device)  # the first that each token sees
        width = len(x) + len(lengths) * before
        apart = x.new_zeros(width + before, x.shape[1]).index_copy(0, rows + before, x)
        y = sum((tap * apart[lag : lag + width] for lag, tap in enumerate(taps)), torch.zeros_like(apart[:width]))[rows]
        return y if self.bias is None else y + self.bias


class GatedNorm(nn.Module):
    """y · silu(z) over its root mean square within each group. [t, inner] to the same, in float32 or better within."""

    def __init__(self, own: StateSpace, eps: float, dtype: torch.dtype, part: Part) -> None:
        super().__init__()
        self.groups, self.eps = own.groups, eps
        self.weight = nn.Parameter(torch.empty(own.inner, dtype=dtype))
        self.splits = {"weight": (Split(0, part, "tp"),)}

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:
        gated = y * F.silu(gate.to(y.dtype))
        grouped = torch.unflatten(gated, 1, (self.groups, -1))
        normed = F.rms_norm(grouped, grouped.shape[2:], eps=self.eps).flatten(1)
        return (self.weight * normed).to(gate.dtype)
