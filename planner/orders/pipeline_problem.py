"""A pipeline whose stages need an order: seconds of its passes, the activations that they hold, and the capacity.

Each of m micro-batches goes forward (F) through stages 0 … p − 1 and back (I, the input gradient); on each stage its W,
the weight gradient, comes some time after its I. Micro-batches keep their sequence: where all are alike, as in the
zero-bubble paper (arXiv 2401.10241), a permuting order can be relabelled, slot by slot, into one that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from planner.errors import Infeasible

StageTable = tuple[tuple[float, ...], ...]  # (stages, micro_batches)
Order = tuple[str, ...]  # by stage its slots as letters, FFIFIWIWW; the k-th of a letter is micro-batch k
OrderObjective = Literal["step", "span"]
"""step   Seconds from the start of the first slot to the end of everything, the work after last slots included.
span   Seconds from the start of a stage's first slot to the end of its last; the longest over stages. It is the period
       of consecutive steps without a synchronisation between them, as with the optimizer of the zero-bubble paper.
"""
OPTIMAL_WITHIN = 1e-8  # relative: closer than this to a lower bound counts as optimal


@dataclass(frozen=True)
class PipelineProblem:
    """Seconds of passes and sends, and memory in any one unit, (stages, micro_batches) each."""

    forward: StageTable  # F
    input_grads: StageTable  # I
    weight_grads: StageTable  # W
    forward_sends: StageTable  # send of activations from stage s to s + 1: (stages − 1, micro_batches)
    backward_sends: StageTable  # send of gradients from stage s + 1 to s: (stages − 1, micro_batches)
    activations: StageTable  # activations that F allocates
    kept_for_weights: StageTable  # part of these that stays from I to W
    capacity: tuple[float, ...]  # memory of each stage for activations
    tail_seconds: tuple[float, ...]  # seconds of each stage after its last slot: exchanges, update

    @property
    def stages(self) -> int:
        return len(self.forward)

    @property
    def micro_batches(self) -> int:
        return len(self.forward[0])

    @cached_property
    def stage_seconds(self) -> tuple[float, ...]:
        """Seconds of all passes of each stage."""
        stages = zip(self.forward, self.input_grads, self.weight_grads, strict=True)
        return tuple(sum(f) + sum(i) + sum(w) for f, i, w in stages)

    @cached_property
    def micro_batch_capacity(self) -> int:
        """Micro-batches that every stage can hold at once, whichever they are."""
        return min(
            int(cap / max(held) * (1 + 1e-12)) for cap, held in zip(self.capacity, self.activations, strict=True)
        )

    def with_capacity_for(self, micro_batches: int) -> "PipelineProblem":
        """The pipeline with memory for `micro_batches` micro-batches on each stage."""
        return replace(self, capacity=tuple(micro_batches * max(held) for held in self.activations))

    def permuted(self, sequence: Sequence[int]) -> "PipelineProblem":
        """The pipeline with its micro-batches permuted: the k-th becomes the one of number `sequence[k]`."""

        def permute(table: StageTable) -> StageTable:
            return tuple(tuple(of_stage[k] for k in sequence) for of_stage in table)

        return replace(
            self,
            forward=permute(self.forward),
            input_grads=permute(self.input_grads),
            weight_grads=permute(self.weight_grads),
            forward_sends=permute(self.forward_sends),
            backward_sends=permute(self.backward_sends),
            activations=permute(self.activations),
            kept_for_weights=permute(self.kept_for_weights),
        )

    def require_capacity(self) -> None:
        """Raises Infeasible when a stage cannot hold a micro-batch."""
        for stage, (cap, held) in enumerate(zip(self.capacity, self.activations, strict=True)):
            if max(held) > cap:
                message = f"stage {stage} holds {cap:g} of activations, and one micro-batch takes {max(held):g}"
                raise Infeasible(message, where="memory", fix="recomputation, smaller micro-batches, or more stages")
