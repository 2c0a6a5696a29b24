"""The input of a model: this rank's shard of a packed batch, and the document boundaries of the whole batch.

In shapes, `tokens` are those of this rank's tensor-parallel block, `local_tokens` those on which this rank alone works
between matrices, and `group_tokens` those of all ranks that share the documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from planner.models.autograd.auxiliary_loss import AuxiliaryLosses
from planner.models.kernels.attention_tiles import GridWindows
from planner.models.sequence_parallel import NO_SEQUENCE_PARALLEL, SequenceParallel
from planner.models.sharding import EqualShard
from planner.models.tensor_parallel import NO_TENSOR_PARALLEL, TensorParallel
from planner.models.token_dispatch import TokenDispatcher

IGNORED = -100  # the target of a token that has none; torch's cross-entropy skips it


@dataclass(frozen=True, slots=True)
class EncoderFeatures:
    """Outputs of encoders that replace the embeddings of some tokens."""

    rows: Tensor  # (features) int64: which of this rank's local_tokens rows
    # (features, hidden), or behind one another those of several depths: (features, depths x hidden)
    values: Tensor

    def merge_into(self, x: Tensor) -> Tensor:
        """Embeddings x `(local_tokens, hidden)` with these, or the first of several depths, in place of some."""
        return x.index_copy(0, self.rows, self.values[:, : x.shape[1]].to(x.dtype))

    def add_deeper(self, layer: int, x: Tensor) -> Tensor:
        """The output x `(local_tokens, hidden)` of a layer, with those of its depth added (arXiv 2406.04334)."""
        first = (layer + 1) * x.shape[1]
        return x.index_add(0, self.rows, self.values[:, first : first + x.shape[1]].to(x.dtype))

    def depths(self, hidden: int) -> int:
        """How many layers' outputs these are added to."""
        return self.values.shape[1] // hidden - 1


@dataclass(frozen=True, slots=True)
class CrossAttentionMemory:
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
    places: Tensor | None = None  # (tokens, axes) int64, of modules in which a token's place has several axes
    extents: Tensor | None = (
        None  # (tokens, 2) int64: rows and columns of the image that a token is of, where asked for
    )
    windows: GridWindows | None = None  # of all group_tokens, in modules with windows of two dimensions
    sequence_parallel: SequenceParallel = NO_SEQUENCE_PARALLEL  # the ranks that share the documents
    tensor_parallel: TensorParallel = NO_TENSOR_PARALLEL  # the ranks that share the matrices: each has these tokens
    features: EncoderFeatures | None = None
    memory: CrossAttentionMemory | None = None  # None: no document reads anything
    # By layer, over the ranks that share its experts; layers not listed have all of them here.
    dispatchers: Mapping[int, TokenDispatcher] = field(default_factory=dict)
    weights: Tensor | None = None  # of each target in the loss, float64; None: all are 1
    capacity_slices: tuple[Tensor, ...] = ()  # rows of each slice with an expert capacity of its own; (): one slice
    auxiliary: AuxiliaryLosses = field(default_factory=AuxiliaryLosses)  # of its layers

    def readers(self) -> "ReadingRows | None":
        """The documents that cross attention reads something for; None where it does for all."""
        lengths, memory = self.cu_seqlens.diff(), self.memory
        outputs = torch.zeros_like(lengths) if memory is None else memory.cu_seqlens.diff()
        read = outputs > 0
        if bool(read.all()):
            return None
        rows = torch.repeat_interleave(read, lengths).nonzero()[:, 0].to(self.inputs.device)
        tensor, local = self.tensor_parallel.among(rows)
        if memory is not None:
            memory = replace(memory, cu_seqlens=boundaries(outputs[read]))
        batch = replace(self, cu_seqlens=boundaries(lengths[read]), tensor_parallel=tensor, memory=memory)
        return ReadingRows(local, batch)

    def with_features(self, x: Tensor) -> Tensor:
        """Embeddings x `(local_tokens, hidden)`, with encoder outputs in place of some."""
        return x if self.features is None else self.features.merge_into(x)

    def weighted_sum(self, losses: Tensor) -> Tensor:
        """The weighted sum (scalar) of losses of this rank's targets, `(local_tokens)` or `(local output tokens)`."""
        if self.weights is None:
            return losses.sum()
        return (losses * self.tensor_parallel.local_rows(self.weights).to(losses.dtype)).sum()

    def tensor_parallel_for(self, part: EqualShard) -> TensorParallel:
        """The ranks over which matrices with this shard are sharded; no others, where the matrices are replicated."""
        return self.tensor_parallel if part.count > 1 else NO_TENSOR_PARALLEL


class ReadingRows(NamedTuple):
    """The part of a batch whose documents read something in cross attention, for layers without self-attention."""

    rows: Tensor  # (rows) int64: which of this rank's local_tokens rows
    batch: Batch


def boundaries(lengths: Tensor) -> Tensor:
    """Where documents of these lengths `(documents)` begin, and where the last ends: `(documents + 1)`."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)])
