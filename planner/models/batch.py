"""What a model is called with: this rank's shard of a packed batch, and where the documents of the whole end."""

from dataclasses import dataclass

from torch import Tensor

from planner.models.exchange import WHOLE, Exchange
from planner.models.tensor import ALONE, Tensors


@dataclass(frozen=True, slots=True)
class Batch:
    """t tokens on this rank, of T in its group. Documents are packed one after the other, without padding."""

    inputs: Tensor  # [t] tokens, or [t, pixels of a patch]
    targets: Tensor  # [t] next tokens, or [t / merge^2, out] vectors
    positions: Tensor  # [t] place of each token in its document, from 0
    cu_seqlens: Tensor  # [documents + 1] int32 in host memory: where each document starts; the last is T
    exchange: Exchange = WHOLE  # over the ranks that share the documents
    tensor: Tensors = ALONE  # over those that share the matrices: each has these t tokens, and works on some of them
