"""What a model is called with: this rank's shard of a packed batch, and where the documents of the whole end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from planner.models.auxiliary import Auxiliary
from planner.models.dispatch import Dispatch
from planner.models.exchange import WHOLE, Exchange
from planner.models.held import Part
from planner.models.tensor import ALONE, Tensors


@dataclass(frozen=True, slots=True)
class Features:
    """Outputs of encoders in place of the embeddings of some tokens."""

    rows: Tensor  # [k] int64: which of this rank's rows between layers
    values: Tensor  # [k, hidden]

    def within(self, x: Tensor) -> Tensor:
        """Embeddings x [s, hidden] with them in it."""
        return x.index_copy(0, self.rows, self.values.to(x.dtype))


@dataclass(frozen=True, slots=True)
class Memory:
    """Outputs of another module that cross attention reads: all that these documents read, one after the other."""

    values: Tensor  # [m, width]
    cu_seqlens: Tensor  # [documents + 1] int32 in host memory


@dataclass(frozen=True, slots=True)
class Batch:
    """t tokens on this rank, of T in its group. Documents are packed one after the other, without padding."""

    inputs: Tensor  # [t] tokens, or [t, pixels of a patch], or [t, 5, mels]: the frames that a token sees
    targets: Tensor  # [t] next tokens, or [t / merged_tokens, out] vectors
    positions: Tensor  # [t] place of each token in its document, from 0
    cu_seqlens: Tensor  # [documents + 1] int32 in host memory: where each document starts; the last is T
    exchange: Exchange = WHOLE  # over the ranks that share the documents
    tensor: Tensors = ALONE  # over those that share the matrices: each has these t tokens, and works on some of them
    features: Features | None = None
    memory: Memory | None = None
    # By layer, over the ranks that have its experts together; of others all are here.
    dispatch: Mapping[int, Dispatch] = field(default_factory=dict)
    slices: tuple[Tensor, ...] = ()  # parts of the rows, in each of which experts have a capacity; (): all are one
    auxiliary: Auxiliary = field(default_factory=Auxiliary)  # losses that its layers add

    def fed(self, x: Tensor) -> Tensor:
        """Embeddings x [s, hidden] with what encoders made in place of some."""
        return x if self.features is None else self.features.within(x)

    def among(self, part: Part) -> Tensors:
        """The ranks that have matrices of which this rank has such a part; nobody else, when it is the whole."""
        return self.tensor if part.of > 1 else ALONE
