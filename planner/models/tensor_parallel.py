"""How ranks that share the matrices of a layer share its tokens (sequence parallelism beside tensor parallelism, arXiv
2205.05198): they all-gather tokens before a matrix, and reduce-scatter after it.
"""

from typing import Protocol

from torch import Tensor

from planner.models.sharding import EqualShard


class TensorParallel(Protocol):
    """The ranks of one tensor-parallel block in one micro-batch, with `tokens` in all, `local_tokens` on this rank."""

    @property
    def shard(self) -> EqualShard:
        """This rank's index in the block, and the number of ranks."""

    def among(self, rows: Tensor) -> "tuple[TensorParallel, Tensor]":
        """The block with these rows `(rows)` of the `tokens` alone, ascending, each on the rank that has it; and which
        of this rank's `local_tokens` are among them.
        """

    def local_rows(self, x: Tensor) -> Tensor:
        """This rank's rows `(local_tokens, ...)` of a replicated x `(tokens, ...)`. Backward all-gathers."""

    def all_gather(self, x: Tensor) -> Tensor:
        """All-gather x `(local_tokens, ...)` to `(tokens, ...)`. Backward reduce-scatters."""

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """Reduce-scatter partial sums x `(tokens, ...)` to `(local_tokens, ...)`. Backward all-gathers."""

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum of x (any shape) over the ranks, on all. Backward is the identity, since all ranks continue alike."""

    def all_reduce_max(self, x: Tensor) -> Tensor:
        """The maximum of x (any shape) over the ranks, on all; without a gradient."""


class NoTensorParallel:
    """A rank that shares no matrices: all operations are the identity."""

    shard = EqualShard()

    def among(self, rows: Tensor) -> "tuple[TensorParallel, Tensor]":
        """Return the rows `(rows)` themselves."""
        return self, rows

    def identity(self, x: Tensor) -> Tensor:
        """Return x (any shape) itself."""
        return x

    local_rows = all_gather = reduce_scatter = all_reduce_sum = all_reduce_max = identity


NO_TENSOR_PARALLEL = NoTensorParallel()
