"""Whisper's encoder (arXiv 2212.04356, §2.2): mel frames in, averaged and projected to the width of a reader.

Two convolutions of width 3 lead from frames to tokens, of which the second goes in steps of two: token j sees frames
2j - 2 to 2j + 2. A token comes with its five frames, so that shards may end anywhere, and a convolution is a matrix
over three neighbours; the first is worked out three times a token instead of twice.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.batch import Batch
from planner.models.encoder import EncoderNetwork
from planner.models.held import WHOLE_MODULE, Held
from planner.models.linear import linear
from planner.models.norms import norm
from planner.specs.layers import Audio
from planner.specs.layers.audio import CONVOLUTION, STRIDE

SEEN = CONVOLUTION + 2 * (CONVOLUTION // 2)  # frames that a token sees: two more than the second convolution's three
LONGEST_WAVE = 10000.0  # over 2 pi, in tokens, of the sinusoidal table


class AudioNetwork(EncoderNetwork):
    def __init__(self, spec: Audio, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        self.pool = spec.pool
        if self.first:
            self.sounds = linear(CONVOLUTION * spec.mels, spec.hidden, True, dtype)
            self.halved = linear(CONVOLUTION * spec.hidden, spec.hidden, True, dtype)
        if self.last:
            self.norm = norm(spec, dtype)
            self.projector = linear(spec.hidden, spec.out, True, dtype)

    def start(self, batch: Batch) -> Tensor:
        """The first convolution sees zeros outside a clip, and so does the second, in front of the first's outputs."""
        frames, positions = batch.tensor.mine(batch.inputs), batch.tensor.mine(batch.positions)
        seen = frames.to(self.sounds.weight.dtype).unfold(1, CONVOLUTION, 1)  # [s, 3, mels, 3]
        heard = torch.unflatten(F.gelu(self.sounds(seen.flatten(2).flatten(0, 1))), 0, (-1, CONVOLUTION))
        outside = (positions == 0)[:, None] & (torch.arange(CONVOLUTION, device=positions.device) == 0)
        heard = heard.masked_fill(outside[:, :, None], 0.0)
        x = batch.fed(F.gelu(self.halved(heard.transpose(1, 2).flatten(1))))
        return x + sinusoids(positions, x.shape[1]).to(x.dtype)

    def tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Each `pool` tokens, which lie side by side in the batch, as their mean, projected."""
        pooled = torch.unflatten(self.norm(x), 0, (-1, self.pool)).mean(1)
        return self.projector(pooled)  # type: ignore[no-any-return]


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """The fixed table at these places, [t, width]: sines of waves that grow longer and longer, then cosines."""
    half = -(-width // 2)
    steps = torch.arange(half, dtype=torch.float64, device=positions.device) / max(1, half - 1)
    angles = positions[:, None].double() * torch.exp(-math.log(LONGEST_WAVE) * steps)
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :width]


def within_clip(inputs: Tensor, span: tuple[int, int], tokens: int) -> Tensor:
    """The frames [n, 5, mels] of a span of a clip's tokens: before its begin and behind its end there are zeros."""
    first, last = span
    places = STRIDE * torch.arange(first, last)[:, None] + torch.arange(SEEN) - CONVOLUTION + 1
    outside = (places < 0) | (places >= STRIDE * tokens)
    return inputs.masked_fill(outside[:, :, None], 0.0)
