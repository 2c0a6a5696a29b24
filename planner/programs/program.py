"""A linear program with integer variables, as arrays: what every back end reads and every formulation writes.

    minimise  cost · x
    such that row_lower <= A x <= row_upper,   lower <= x <= upper,   x[integer] integer

A is stored by rows (CSR): row i has `values[indptr[i]:indptr[i + 1]]` in the columns `indices[...]`, which rise.
Always minimised; infinities mean "no bound". A program is immutable: derive a new one with `dataclasses.replace`.

It is built the way its equations read:

    b = ProgramBuilder()
    x = b.variable(0, 1, integer=True, cost=3.0)
    y = b.variable(0, 10)
    b.row({x: 1.0, y: -2.0}, upper=4.0)          # x - 2 y <= 4
    program = b.build()

`planner.programs.solve` solves it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program of n variables, m rows and their nonzero entries. Raises ValueError for arrays that do not fit."""

    cost: Floats  # (n,)
    lower: Floats  # (n,)
    upper: Floats  # (n,)
    integer: Bools  # (n,)
    indptr: Ints  # (m + 1,)
    indices: Ints  # (entries,)
    values: Floats  # (entries,)
    row_lower: Floats  # (m,)
    row_upper: Floats  # (m,)
    names: tuple[str, ...] = ()  # of the variables, only for messages: () or one each
    row_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n, m, entries = len(self.cost), len(self.row_lower), len(self.values)
        shapes = (len(self.lower), len(self.upper), len(self.integer), len(self.row_upper), len(self.indptr))
        if shapes != (n, n, n, m, m + 1) or len(self.indices) != entries:
            raise ValueError(f"the arrays of a program disagree in length: {shapes} for {n} variables and {m} rows")
        if self.indptr[0] != 0 or self.indptr[-1] != entries or (np.diff(self.indptr) < 0).any():
            raise ValueError("indptr must rise from 0 to the number of entries")
        key = self.entry_rows() * n + self.indices
        if entries and (self.indices.min() < 0 or self.indices.max() >= n or (np.diff(key) <= 0).any()):
            raise ValueError("the columns of a row must rise and name variables of the program")
        if not (np.isfinite(self.cost).all() and np.isfinite(self.values).all()):
            raise ValueError("costs and coefficients must be finite")
        for low, high in ((self.lower, self.upper), (self.row_lower, self.row_upper)):
            if not ((low < np.inf).all() and (high > -np.inf).all()):  # catches NaN too
                raise ValueError("a lower bound is below +inf, an upper bound above -inf, and neither is NaN")

    @property
    def variables(self) -> int:
        return len(self.cost)

    @property
    def rows(self) -> int:
        return len(self.row_lower)

    def entry_rows(self) -> Ints:
        """The row of each stored entry."""
        return np.repeat(np.arange(self.rows, dtype=np.int64), np.diff(self.indptr))

    def name(self, variable: int) -> str:
        return self.names[variable] if self.names else f"x{variable}"

    def row_name(self, row: int) -> str:
        return self.row_names[row] if self.row_names else f"row {row}"

    def objective(self, x: Floats) -> float:
        """The cost of values of all variables, (variables,)."""
        return float(self.cost @ x)

    def row_activities(self, x: Floats) -> Floats:
        """The activities of the rows at values of all variables: A x, (rows,)."""
        products = self.values * x[self.indices]
        return np.bincount(self.entry_rows(), products, minlength=self.rows).astype(np.float64)

    def violation(self, x: Floats) -> float:
        """The largest violation of a bound by `x`, over max(1, |bound|), or distance of an integer variable from an
        integer.
        """
        misses = [
            _violations(x, self.lower, self.upper),
            _violations(self.row_activities(x), self.row_lower, self.row_upper),
            np.abs(x - np.rint(x))[self.integer],
        ]
        worst = float(np.concatenate(misses).max(initial=0.0))
        return worst if worst == worst else np.inf

    def box_bound(self) -> float:
        """The least cost within the variables' own bounds: a lower bound without a solver."""
        best = np.where(self.cost > 0, self.lower, self.upper)
        paid = self.cost != 0
        return float(self.cost[paid] @ best[paid])

    def without_objective(self) -> "Program":
        """The program with zero costs: its feasible set alone."""
        return replace(self, cost=np.zeros(self.variables))

    def tightened(self) -> "Program":
        """The program with the bounds of integer variables tightened to integers."""
        lower = np.where(self.integer, np.ceil(self.lower - 1e-9), self.lower) + 0.0  # no -0.0
        upper = np.where(self.integer, np.floor(self.upper + 1e-9), self.upper) + 0.0
        return replace(self, lower=lower, upper=upper)

    def has_crossed_bounds(self) -> bool:
        """Whether some lower bound exceeds its upper bound, so that nothing is feasible."""
        return bool((self.lower > self.upper).any() or (self.row_lower > self.row_upper).any())


def _violations(x: Floats, lower: Floats, upper: Floats) -> Floats:
    """Violations of bounds, relative beyond 1; negative where they are kept."""
    below = (lower - x) / np.maximum(1.0, np.where(np.isfinite(lower), np.abs(lower), 1.0))
    above = (x - upper) / np.maximum(1.0, np.where(np.isfinite(upper), np.abs(upper), 1.0))
    return np.maximum(below, above)


class ProgramBuilder:
    """Collects variables and rows, each identified by its index; a variable's is its position in a solution."""

    def __init__(self) -> None:
        self._variables: list[tuple[float, float, bool, float, str]] = []
        self._rows: list[tuple[list[tuple[int, float]], float, float, str]] = []

    def variable(
        self, lower: float = 0.0, upper: float = inf, integer: bool = False, cost: float = 0.0, name: str = ""
    ) -> int:
        """Add a variable; returns its index."""
        self._variables.append((lower, upper, integer, cost, name or f"x{len(self._variables)}"))
        return len(self._variables) - 1

    def row(self, terms: Mapping[int, float], lower: float = -inf, upper: float = inf, name: str = "") -> int:
        """Add the constraint lower <= sum of coefficient · variable <= upper; returns its index."""
        entries = sorted((variable, value) for variable, value in terms.items() if value != 0)
        self._rows.append((entries, lower, upper, name or f"row {len(self._rows)}"))
        return len(self._rows) - 1

    def build(self) -> Program:
        """The program as arrays."""
        lower, upper, integer, cost, names = zip(*self._variables, strict=True) if self._variables else ((),) * 5
        terms, row_lower, row_upper, row_names = zip(*self._rows, strict=True) if self._rows else ((),) * 4
        entries = list(chain.from_iterable(terms))
        return Program(
            cost=np.array(cost, dtype=np.float64),
            lower=np.array(lower, dtype=np.float64),
            upper=np.array(upper, dtype=np.float64),
            integer=np.array(integer, dtype=np.bool_),
            indptr=np.cumsum([0, *map(len, terms)], dtype=np.int64),
            indices=np.array([variable for variable, _ in entries], dtype=np.int64),
            values=np.array([value for _, value in entries], dtype=np.float64),
            row_lower=np.array(row_lower, dtype=np.float64),
            row_upper=np.array(row_upper, dtype=np.float64),
            names=names,
            row_names=row_names,
        )
