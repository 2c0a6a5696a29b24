"""The input of a model: this rank's shard of a packed batch, and the document boundaries of the whole batch.

In shapes, `tokens` are those of this rank's tensor-parallel block, `local_tokens` those on which this rank alone works
between matrices, and `group_tokens` those of all ranks that share the documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from planner.models.auxiliary import Auxiliary
from planner.models.dispatch import Dispatch
from planner.models.exchange import WHOLE, Exchange
from planner.models.held import Part
from planner.models.tensor import ALONE, Tensors

IGNORED = -100  # the target of a token that has none; torch's cross-entropy skips it


@dataclass(frozen=True, slots=True)
class Features:
    """Outputs of encoders that replace the embeddings of some tokens."""

    rows: Tensor  # (features) int64: which of this rank's local_tokens rows
    values: Tensor  # (features, hidden)

    def within(self, x: Tensor) -> Tensor:
        """Embeddings x `(local_tokens, hidden)` with these in place of some."""
        return x.index_copy(0, self.rows, self.values.to(x.dtype))


@dataclass(frozen=True, slots=True)
class Memory:
    """Outputs of another module that cross-attention reads, packed by document."""

    values: Tensor  # (read_tokens, width)
    cu_seqlens: Tensor  # (documents + 1) int32 in host memory


@dataclass(frozen=True, slots=True)
class Batch:
    """This rank's tokens of documents that are packed one after the other, without padding."""

    inputs: Tensor  # (tokens) token ids, (tokens, pixels of a patch), or (tokens, 5, mels): frames that a token sees
    targets: Tensor  # (tokens) next token ids, or (tokens / merged_tokens, out) vectors
    positions: Tensor  # (tokens) position of each token in its document, from 0
    cu_seqlens: Tensor  # (documents + 1) int32 in host memory: first token of each document; then group_tokens
    exchange: Exchange = WHOLE  # the ranks that share the documents
    tensor: Tensors = ALONE  # the ranks that share the matrices: each has these tokens
    features: Features | None = None
    memory: Memory | None = None
    # By layer, over the ranks that share its experts; layers not listed have all of them here.
    dispatch: Mapping[int, Dispatch] = field(default_factory=dict)
    slices: tuple[Tensor, ...] = ()  # row indices of the slices that each have their own expert capacity; (): one slice
    auxiliary: Auxiliary = field(default_factory=Auxiliary)  # of its layers

    def fed(self, x: Tensor) -> Tensor:
        """Embeddings x `(local_tokens, hidden)`, with encoder outputs in place of some."""
        return x if self.features is None else self.features.within(x)

    def among(self, part: Part) -> Tensors:
        """The ranks over which matrices with this shard are sharded; no others, where the matrices are replicated."""
        return self.tensor if part.of > 1 else ALONE
