"""Matchings of rows with columns of most weight, each with one at most: an assignment problem, solved exactly."""

import numpy as np

from planner.programs.program import Floats

UNITS = 10**9  # of the largest weight: the solver's weights are whole numbers


def heaviest_matching(weights: Floats) -> list[tuple[int, int]]:
    """Pairs of row and column of most weight in all; `weights`, (rows, columns): a pair of none or less is never one.

    The solver wants everybody matched: rows and columns have a partner of their own besides, of weight 0, and where a
    row and a column are matched their own partners are, with each other.
    """
    from ortools.graph.python.linear_sum_assignment import SimpleLinearSumAssignment

    rows, columns = weights.shape
    row, column = np.nonzero(weights > 0)
    if not len(row):
        return []
    units = np.rint(weights[row, column] / weights.max() * UNITS).astype(np.int64)
    left = np.concatenate([row, np.arange(rows), rows + np.arange(columns), rows + column])
    right = np.concatenate([column, columns + np.arange(rows), np.arange(columns), columns + row])
    cost = np.concatenate([-units, np.zeros(rows + columns + len(row), dtype=np.int64)])
    problem = SimpleLinearSumAssignment()
    problem.add_arcs_with_cost(left.astype(np.int32), right.astype(np.int32), cost)
    if problem.solve() != problem.OPTIMAL:
        raise ArithmeticError("no matching was found, and everybody alone is one")
    mates = ((number, problem.right_mate(number)) for number in range(rows))
    return [(number, mate) for number, mate in mates if mate < columns]
