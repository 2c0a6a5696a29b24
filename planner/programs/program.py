"""A linear program with integer variables, as arrays: what every back end reads and every formulation writes.

    minimise  cost · x
    such that row_lower <= A x <= row_upper,   lower <= x <= upper,   x[integer] integer

A is stored by rows (CSR): row i has `values[indptr[i]:indptr[i + 1]]` in the columns `indices[...]`, which rise.
Always minimised; infinities mean "no bound". A program is immutable: derive a new one with `dataclasses.replace`.
"""

from dataclasses import dataclass, replace

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
        """Cost of values."""
        return float(self.cost @ x)

    def row_activities(self, x: Floats) -> Floats:
        """A x, (m,)."""
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
        """The same feasible set with zero costs."""
        return replace(self, cost=np.zeros(self.variables))

    def tightened(self) -> "Program":
        """The same program with the bounds of integer variables tightened to integers."""
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
