"""Whisper's encoder (arXiv 2212.04356, §2.2): mel frames in; tokens out, averaged and projected to the width of another
module.

Two convolutions of width 3, the second with stride 2, lead from frames to tokens: token j depends on frames 2j - 2 to
2j + 2. A token comes with its five frames, so that shards may end anywhere, and a convolution is a matrix over three
neighbours. The first convolution is therefore computed three times per token instead of twice.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.batch import Batch
from planner.models.layers.linear import build_norm, replicated_linear
from planner.models.networks.network import EncoderNetwork
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.layers import Audio
from planner.specs.layers.audio import CONVOLUTION, FRAMES_PER_TOKEN

FRAMES_SEEN = CONVOLUTION + 2 * (CONVOLUTION // 2)  # of a token: two more than the second convolution's three
LONGEST_WAVELENGTH = 10000.0  # of the sinusoidal table, in tokens, divided by 2 pi


class AudioNetwork(EncoderNetwork):
    """Whisper's encoder with its convolutions and projector."""

    def __init__(self, spec: Audio, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        self.pool = spec.pool
        if self.has_first_layer:
            self.sounds = replicated_linear(CONVOLUTION * spec.mels, spec.hidden, True, dtype)
            self.halved = replicated_linear(CONVOLUTION * spec.hidden, spec.hidden, True, dtype)
        if self.has_last_layer:
            self.norm = build_norm(spec, dtype)
            self.projector = replicated_linear(spec.hidden, spec.out, True, dtype)

    def embed(self, batch: Batch) -> Tensor:
        """The first layer's input `(local_tokens, hidden)`. Each convolution is padded with zeros outside a clip."""
        frames = batch.tensor_parallel.local_rows(batch.inputs)
        positions = batch.tensor_parallel.local_rows(batch.positions)
        windows = frames.to(self.sounds.weight.dtype).unfold(1, CONVOLUTION, 1)  # (local_tokens, 3, mels, 3)
        convolved = torch.unflatten(F.gelu(self.sounds(windows.flatten(2).flatten(0, 1))), 0, (-1, CONVOLUTION))
        outside = (positions == 0)[:, None] & (torch.arange(CONVOLUTION, device=positions.device) == 0)
        convolved = convolved.masked_fill(outside[:, :, None], 0.0)
        x = batch.with_features(F.gelu(self.halved(convolved.transpose(1, 2).flatten(1))))
        return x + sinusoidal_positions(positions, x.shape[1]).to(x.dtype)

    def output_tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """The mean of each `pool` tokens, which are consecutive in the batch, then norm and projector (Qwen2-Audio,
        arXiv 2407.10759): x `(local_tokens, hidden)` to `(local_tokens / pool, out)`.
        """
        pooled = torch.unflatten(x, 0, (-1, self.pool)).mean(1)
        return self.projector(self.norm(pooled))  # type: ignore[no-any-return]


def sinusoidal_positions(positions: Tensor, width: int) -> Tensor:
    """The fixed table `(tokens, width)` at positions `(tokens)`: sines of growing wavelengths, then cosines."""
    half = -(-width // 2)
    steps = torch.arange(half, dtype=torch.float64, device=positions.device) / max(1, half - 1)
    angles = positions[:, None].double() * torch.exp(-math.log(LONGEST_WAVELENGTH) * steps)
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :width]


def frames_within_clip(inputs: Tensor, span: tuple[int, int], tokens: int) -> Tensor:
    """The frames `(n, 5, mels)` of a span of a clip's tokens, with zeros before its start and after its end."""
    first, last = span
    frames = FRAMES_PER_TOKEN * torch.arange(first, last)[:, None] + torch.arange(FRAMES_SEEN) - CONVOLUTION + 1
    outside = (frames < 0) | (frames >= FRAMES_PER_TOKEN * tokens)
    return inputs.masked_fill(outside[:, :, None], 0.0)
