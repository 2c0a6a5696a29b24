"""What is asked of a back end, what it claims, and what is left of the claim once it has been checked."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from planner.solve.program import Floats

Status = Literal["optimal", "feasible", "infeasible", "unbounded", "unknown"]
Claim = Literal["searched", "infeasible", "unbounded"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much work a back end may do. Work is counted in nodes or in CP-SAT's deterministic time, so that the same
    input always ends at the same place; `seconds` stops by the clock as well, and then it may not. A linear program,
    and the first one of a search tree, is always finished unless the clock stops it."""

    effort: int = 2  # 1..4
    seconds: float | None = None
    seed: int = 0

    @property
    def nodes(self) -> int:
        return (200, 2_000, 20_000, 1_000_000)[self.effort - 1]

    @property
    def work(self) -> float:
        """Deterministic time of CP-SAT; one unit is some seconds."""
        return (0.5, 2.0, 10.0, 300.0)[self.effort - 1]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a back end claims: `values` fit up to its tolerances, and nothing legal costs less than `bound`."""

    claim: Claim = "searched"
    values: Floats | None = None
    bound: float = -inf
    coarse: bool = False  # the continuous values are only near: solve for them again


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A checked answer: `values` have been put into the program again, and `objective` is their cost.

    optimal: bound and objective meet · feasible: they do not · unknown: nothing legal was found, nor ruled out.
    """

    status: Status
    values: Floats | None  # (n,), whole where the program says so
    objective: float  # +inf without values, -inf if unbounded
    bound: float  # no legal point costs less
    seconds: float
    solver: str
