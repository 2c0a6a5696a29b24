"""Functions of tensors: attention back ends, position encodings, grouped matrix products and state-space scans."""

from planner.models.kernels.attention import packed_attention
from planner.models.kernels.attention_tiles import Masking
from planner.models.kernels.blockwise import Spans, blockwise_attention
