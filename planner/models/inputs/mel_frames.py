"""From the mel frames of a clip to the windows of frames that an audio encoder reads."""

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.networks.audio_network import FRAMES_SEEN
from planner.specs.layers import Audio
from planner.specs.layers.audio import CONVOLUTION, FRAMES_PER_SECOND, FRAMES_PER_TOKEN


def clip_windows(spec: Audio, frames: Tensor) -> Tensor:
    """The frames that each token of a clip sees, `(tokens, 5, mels)` in float32, of the clip's `(frames, mels)`: part
    by part, each filled up with zeros to its length.

    Windows at a part's ends see its neighbours: `frames_within_clip` takes them out.
    """
    lengths, spans = spec.clip_parts(len(frames) / FRAMES_PER_SECOND), spec.clip_spans(len(frames))
    parts = [
        F.pad(frames[first:last].float(), (0, 0, 0, length - (last - first)))
        for length, (first, last) in zip(lengths, spans, strict=True)
    ]
    before = CONVOLUTION - 1  # frames that the first token sees before its own
    padded = F.pad(torch.cat(parts), (0, 0, before, FRAMES_SEEN - FRAMES_PER_TOKEN - before))
    return padded.unfold(0, FRAMES_SEEN, FRAMES_PER_TOKEN).transpose(1, 2)
