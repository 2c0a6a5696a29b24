"""Build a program the way its equations read.

b = ProgramBuilder()
x = b.variable(0, 1, integer=True, cost=3.0)
y = b.variable(0, 10)
b.row({x: 1.0, y: -2.0}, upper=4.0)          # x - 2 y <= 4
program = b.build()

`planner.programs.solve` solves it.
"""

from collections.abc import Mapping
from itertools import chain
from math import inf

import numpy as np

from planner.programs.program import Program


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
