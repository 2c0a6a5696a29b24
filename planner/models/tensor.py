"""How the ranks that share the matrices of a layer share its tokens between them (sequence parallelism beside tensor
parallelism, arXiv 2205.05198): in front of a matrix they gather, behind it they add up and part again.
"""

from typing import Protocol

from torch import Tensor

from planner.models.held import Part


class Tensors(Protocol):
    """The ranks of one tensor-parallel block in one micro-batch: t tokens together, s of them on this rank."""

    @property
    def part(self) -> Part:
        """Which of the ranks this is, of how many."""

    def mine(self, x: Tensor) -> Tensor:
        """[t, ...] that all ranks have alike to [s, ...]: this rank's rows. Backward gathers."""

    def gather(self, x: Tensor) -> Tensor:
        """[s, ...] to [t, ...]; backward adds up the ranks' gradients and parts them."""

    def scatter(self, x: Tensor) -> Tensor:
        """Partial sums [t, ...] to this rank's rows of the whole sums [s, ...]; backward gathers."""

    def total(self, x: Tensor) -> Tensor:
        """The sum over the ranks, on all; backward hands the gradient through, since all go on alike."""

    def largest(self, x: Tensor) -> Tensor:
        """The maximum over the ranks, on all; without a gradient."""


class Alone:
    """A rank that shares no matrices."""

    part = Part()

    def mine(self, x: Tensor) -> Tensor:
        return x

    def gather(self, x: Tensor) -> Tensor:
        return x

    def scatter(self, x: Tensor) -> Tensor:
        return x

    def total(self, x: Tensor) -> Tensor:
        return x

    def largest(self, x: Tensor) -> Tensor:
        return x


ALONE = Alone()
