"""An audio encoder: mel frames of a clip in, tokens for a reader out."""

from itertools import pairwise
from math import ceil
from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, LayerCount, Positive
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads, norm_parameters
from planner.specs.layers.stack import Bias, InputUnit, ModuleStack, Norm

CONVOLUTION = 3  # width in frames of each of the two convolutions (arXiv 2212.04356, §2.2)
FRAMES_PER_SECOND = 100  # mel frames: a window every 10 ms (arXiv 2212.04356, §2.2)
ROUNDING = 1e-6  # of seconds, and of frames: no part of a clip
FRAMES_PER_TOKEN = 2  # frames per token: the stride of the second one


class Audio(ModuleStack, kw_only=True, tag_field="kind", tag="audio"):
    """Whisper's encoder (arXiv 2212.04356): two convolutions of width 3 over mel frames, of which the second halves
    their number, then full attention within a clip, then one linear. Its tokens are the outputs of the convolutions.
    """

    input_unit: ClassVar[InputUnit] = "frames"

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    ffn: Count
    head_dim: Count | None = None
    gated: bool = False
    norm: Norm = "layer"
    bias: Bias | Literal["all_but_key"] = "all_but_key"
    mels: Count  # mel bins of a frame
    pool: Count = 1  # neighbouring tokens averaged into one output token
    out: Count  # width of the output tokens: the hidden size of the module that reads them
    positions: Literal["sinusoidal"] = "sinusoidal"  # a fixed table
    chunk: Positive | None = None  # seconds that attention stays within; None: a whole clip
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)

    def clip_parts(self, seconds: float) -> tuple[int, ...]:
        chunk = self.chunk or seconds
        whole = int(seconds / chunk + ROUNDING)
        rest = seconds - whole * chunk
        unit = FRAMES_PER_TOKEN * self.pool
        lengths = [chunk] * whole + [rest] * (rest > ROUNDING)
        return tuple(max(1, ceil(FRAMES_PER_SECOND * each / unit - ROUNDING)) * unit for each in lengths)

    def clip_spans(self, frames: int) -> tuple[tuple[int, int], ...]:
        """First frame, and the one behind the last, of each part of a clip of so many frames. A part may be longer than
        its frames, by less than an output's: `clip_parts` rounds up.
        """
        parts = len(self.clip_parts(frames / FRAMES_PER_SECOND))
        each = FRAMES_PER_SECOND * (self.chunk or frames / FRAMES_PER_SECOND)
        ends = [int(each * number + ROUNDING) for number in range(parts)]
        return tuple(pairwise([*ends, frames]))

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        """Convolutions, norm and projector. The first convolution runs on twice as many frames as there are tokens."""
        return (
            EmbeddingHeadWeight("convolutions", True, self.hidden, CONVOLUTION * self.mels, self.hidden, 2.0),
            EmbeddingHeadWeight("convolutions", True, self.hidden, CONVOLUTION * self.hidden, self.hidden, 1.0),
            EmbeddingHeadWeight("norms", False, norm_parameters(self, self.hidden)),
            EmbeddingHeadWeight("projector", False, self.out, self.hidden, self.out, 1.0 / self.pool),
        )

    @property
    def input_width(self) -> int:
        return self.mels

    @property
    def feature_width(self) -> int:
        return self.out

    @property
    def tokens_per_output(self) -> int:
        return self.pool
