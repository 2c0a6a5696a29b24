"""A pipeline whose stages have to be given an order: what its passes take, what they hold, and how much may be held.

Each of m micro-batches goes forward (F) through stages 0 … p − 1 and back (I, the gradient of the inputs); on each
stage its W, the gradient of the weights, comes some time after its I. Micro-batches keep their sequence: where all are
alike, as in the zero-bubble paper (arXiv 2401.10241), an order that mixes them up can be renamed, slot by slot, into
one that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from planner.errors import Infeasible

Rows = tuple[tuple[float, ...], ...]  # of each stage, for each micro-batch
Order = tuple[str, ...]  # of each stage its slots, as letters: FFIFIWIWW; the k-th of a letter is micro-batch k
Objective = Literal["step", "span"]
"""step   From the start of the first slot of all to the end of everything, with what each stage does last (`after`).
span   Of a stage, from the start of its first slot to the end of its last; the longest of them. It is the period of
       steps that follow each other without meeting, as those of the zero-bubble paper's optimizer do.
"""
CLOSE = 1e-8  # relative: what is so near a floor is optimal


@dataclass(frozen=True)
class Pipeline:
    """Seconds, and memory in any one unit."""

    forward: Rows  # F
    inputs: Rows  # I
    weights: Rows  # W
    ahead: Rows  # from stage s to s + 1, behind the F there: one row fewer
    back: Rows  # from stage s + 1 to s, behind the I there
    held: Rows  # what F takes
    kept: Rows  # of it, what stays from I to W
    cap: tuple[float, ...]  # of each stage
    after: tuple[float, ...]  # seconds of each stage behind its last slot: exchanges, update

    @property
    def stages(self) -> int:
        return len(self.forward)

    @property
    def micro_batches(self) -> int:
        return len(self.forward[0])

    @cached_property
    def work(self) -> tuple[float, ...]:
        """Seconds that each stage works."""
        rows = zip(self.forward, self.inputs, self.weights, strict=True)
        return tuple(sum(f) + sum(i) + sum(w) for f, i, w in rows)

    @cached_property
    def room(self) -> int:
        """How many micro-batches every stage can hold at once, whichever they are."""
        return min(int(cap / max(held) * (1 + 1e-12)) for cap, held in zip(self.cap, self.held, strict=True))

    def capped(self, micro_batches: int) -> "Pipeline":
        """With memory for so many micro-batches on each stage, and no more."""
        return replace(self, cap=tuple(micro_batches * max(held) for held in self.held))

    def permuted(self, sequence: Sequence[int]) -> "Pipeline":
        """Its micro-batches in another sequence: the k-th of it is number `sequence[k]` here."""

        def turned(rows: Rows) -> Rows:
            return tuple(tuple(row[k] for k in sequence) for row in rows)

        return replace(
            self,
            forward=turned(self.forward),
            inputs=turned(self.inputs),
            weights=turned(self.weights),
            ahead=turned(self.ahead),
            back=turned(self.back),
            held=turned(self.held),
            kept=turned(self.kept),
        )

    def require_room(self) -> None:
        """Raises Infeasible when a stage cannot hold a micro-batch."""
        for stage, (cap, held) in enumerate(zip(self.cap, self.held, strict=True)):
            if max(held) > cap:
                message = f"stage {stage} holds {cap:g} of activations, and one micro-batch takes {max(held):g}"
                raise Infeasible(message, where="memory", fix="recomputation, smaller micro-batches, or more stages")


def even(
    stages: int,
    micro_batches: int,
    seconds: tuple[float, float, float],
    transfer: float = 0.0,
    cap: float = float("inf"),
    memory: tuple[float, float] = (2.0, 1.0),
) -> Pipeline:
    """All stages and all micro-batches alike. `seconds`: of F, I and W; `memory`: what F takes, and what of it W gives
    back. As the zero-bubble scheduler's own example has it, F takes 2, I gives 1 back and W the other.
    """
    forward, inputs, weights, held, kept = (((each,) * micro_batches,) * stages for each in (*seconds, *memory))
    moved = ((transfer,) * micro_batches,) * (stages - 1)
    return Pipeline(forward, inputs, weights, moved, moved, held, kept, (cap,) * stages, (0.0,) * stages)
