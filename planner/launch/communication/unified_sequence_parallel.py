"""How the ranks of a sequence-parallel group share sequences: heads within sub-groups of consecutive ranks (Ulysses),
tokens around rings.

Both together are unified sequence parallelism (arXiv 2405.07719). `ring` sub-groups of `ulysses` ranks share the
documents in zig-zag order. Within a sub-group each rank has an equal share of the rows of that sub-group, exchanges its
tokens' heads for its heads' tokens, and passes keys and values of these heads to the same rank of the next sub-group.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.ring_attention import RingAttention
from planner.launch.communication.ulysses import UlyssesAttention
from planner.models import NO_SEQUENCE_PARALLEL, SequenceParallel
from planner.models.kernels import Masking, packed_attention
from planner.specs.sequence_sharding import (
    SequenceSplit,
    Span,
    even_sizes,
    rank_spans,
    token_count,
    whole_shares,
    zigzag,
)


class SharedMicroBatch(NamedTuple):
    """A micro-batch and the ranks that share it."""

    ranks: Sequence[int]  # ascending
    split: SequenceSplit
    lengths: Sequence[int]  # tokens of each document
    unit: int = 1  # tokens that are not separated
    parts: bool = False  # whether documents are parts of items

    def check(self) -> None:
        """Raises ValueError where ranks and split do not match."""
        if self.split.ulysses * self.split.ring != len(self.ranks):
            raise ValueError(f"{len(self.ranks)} ranks are not {self.split.ring} sub-groups of {self.split.ulysses}")


class WholeDocuments:
    """Attention of a rank that has whole documents, of these lengths: it exchanges nothing."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.ends = [0, *accumulate(lengths)]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention with the arguments and shapes of `SequenceParallel.attend`."""
        own = torch.tensor(self.ends, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
        return packed_attention(q, k, v, own, masking, sinks)


Attention = UlyssesAttention | RingAttention | WholeDocuments


class UnifiedSequenceParallel:
    """The `SequenceParallel` of one rank where there are several sub-groups, or each rank has whole documents: `spans`
    are its own tokens; `attention` exchanges with the others, if any.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, spans: Sequence[Span], tokens: int, within: Attention) -> None:
        self.spans, self.tokens, self.attention = list(spans), tokens, within

    def local_spans(self, lengths: Sequence[int]) -> list[Span]:
        """The spans of this rank. Raises ValueError for documents of other lengths."""
        if sum(lengths) != self.tokens:
            raise ValueError(f"the shards hold {self.tokens} tokens, the documents {sum(lengths)}")
        return self.spans

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention with the arguments and shapes of `SequenceParallel.attend`."""
        return self.attention.attend(q, k, v, cu_seqlens, masking, sinks)


def sequence_parallel_over(
    groups: ProcessGroups, sharing: SharedMicroBatch, meter: CommunicationMeter
) -> SequenceParallel:
    """This rank's `SequenceParallel` for a micro-batch. Raises ValueError where ranks and split do not match, or
    lengths are not multiples of the unit.
    """
    sharing.check()
    ranks, split, lengths, unit, parts = sharing
    if len(ranks) == 1:
        return NO_SEQUENCE_PARALLEL
    index = ranks.index(groups.rank)
    shares = whole_shares(lengths, split) if parts else None
    if shares:
        own = rank_spans(lengths, split, index, unit, parts)
        return UnifiedSequenceParallel(own, sum(lengths), WholeDocuments(shares[index]))
    if split.ring == 1:
        return UlyssesAttention(groups[ranks], even_sizes(sum(lengths), split.ulysses, unit), meter)
    subgroup, within = divmod(index, split.ulysses)
    subgroup_shards = zigzag(lengths, split.ring, unit)
    attention: Attention = RingAttention(groups[split.rings(ranks)[within]], subgroup_shards, meter)
    if split.ulysses > 1:
        sizes = even_sizes(token_count(subgroup_shards[subgroup]), split.ulysses, unit)
        attention = UlyssesAttention(groups[split.ulysses_blocks(ranks)[subgroup]], sizes, meter, attention.attend)
    return UnifiedSequenceParallel(rank_spans(lengths, split, index, unit), sum(lengths), attention)
