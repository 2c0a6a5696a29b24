"""The limits given to a back end, the answer that it claims, and the solution after the claim has been checked."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from planner.programs.program import Floats

Status = Literal["optimal", "feasible", "infeasible", "unbounded", "unknown"]
Claim = Literal["searched", "infeasible", "unbounded"]


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """How much work a back end may do.

    Work is counted in nodes, or in CP-SAT's deterministic time, so that the same input always gives the same answer,
    unless the wall-clock limit `seconds` stops it. A linear program, and the root relaxation of a search tree, is
    always finished unless the clock stops it.
    """

    effort: int = 2  # 1..4
    seconds: float | None = None
    seed: int = 0

    @property
    def nodes(self) -> int:
        """Nodes of a search tree."""
        return (200, 2_000, 20_000, 1_000_000)[self.effort - 1]

    @property
    def work(self) -> float:
        """Deterministic time of CP-SAT; one unit is a few seconds."""
        return (0.5, 2.0, 10.0, 300.0)[self.effort - 1]


@dataclass(frozen=True, slots=True, eq=False)
class SolverAnswer:
    """The claim of a back end: `values` are feasible up to its tolerances, and no feasible point costs less than
    `bound`.
    """

    claim: Claim = "searched"
    values: Floats | None = None
    bound: float = -inf
    approximate: bool = False  # the continuous values are approximate and have to be solved for again


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A checked answer: `values` have been evaluated in the program, and `objective` is their cost.

    optimal: bound and objective agree · feasible: they do not · unknown: no feasible point was found, nor ruled out.
    """

    status: Status
    values: Floats | None  # (n,), integer where the program requires it
    objective: float  # +inf without values, -inf if unbounded
    bound: float  # no feasible point costs less
    seconds: float
    solver: str
