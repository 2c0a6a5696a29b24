"""A program in integers that CP-SAT can represent, and never tighter than the program itself.

    x_j = origin_j + step_j · k_j,   k_j integer in 0..top_j

An integer variable has step 1 and loses nothing. A continuous one gets a grid of step 2^-GRID_BITS of its range, the
range rounded up to a power of two. Each row (and the objective) is multiplied by a scale and its coefficients are
rounded to integers. That gives two errors with known bounds:

    moving x_j to its nearest grid point moves the row by at most  scale · |a_j| · step_j / 2
    rounding coefficient w_j to ŵ_j moves it by at most            |scale · w_j - ŵ_j| · top_j

The bounds of the row are relaxed by their sum. So every feasible point of the program, moved to the grid, is feasible
here: a bound, less the objective's own error, and a proof of infeasibility both hold for the program. A point that is
feasible here may violate a row of the program by that error; the check of the answer solves the continuous variables
again exactly. Integer coefficients, and decimals of up to six places, are represented without error.
"""

from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.programs.program import Bools, Floats, Ints, Program

GRID_BITS = 24
FINEST = 2.0**-36  # no grid is finer
PRECISION = 1e-8  # rounding error of the coefficients of a row, relative to its largest activity
SMALL = 1e-3  # activities below it are treated as this large
MAGNITUDE = 2.0**60  # largest activity of a row: sums have to stay within 64 bits
OPEN = 2.0**62  # beyond the activity of every row: stands for a missing bound
NOISE = 1e-15  # of an activity: the arithmetic of doubles, with a few bits to spare


@dataclass(frozen=True, slots=True, eq=False)
class IntegerRow:
    """One row, or the objective, in integers: ŵ · k equals scale · (a · (x - origin)) up to `error`."""

    variables: Ints
    weights: Ints  # ŵ
    scale: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class IntegerGrid:
    """The grid of all variables, (variables,) each."""

    origin: Floats
    step: Floats
    top: Floats  # integers

    def values(self, k: Floats) -> Floats:
        """Values of the variables at a grid point."""
        return self.origin + self.step * k

    def nearest(self, x: Floats) -> Floats:
        """The grid point nearest to some values."""
        return np.clip(np.rint((x - self.origin) / self.step), 0, self.top)


def make_grid(program: Program) -> IntegerGrid:
    """The grid of a program. Raises InputError for a variable without two finite bounds: CP-SAT has no infinity."""
    width = program.upper - program.lower
    for variable in np.flatnonzero(~np.isfinite(width)):
        raise InputError(
            f"CP-SAT needs both bounds of every variable, and `{program.name(int(variable))}` lacks one",
            fix="give it bounds that no good solution reaches, or choose another back end",
        )
    power = np.exp2(np.ceil(np.log2(np.where(width > 0, width, 1.0))) - GRID_BITS)
    step = np.where(program.integer, 1.0, np.maximum(power, FINEST))
    return IntegerGrid(origin=program.lower, step=step, top=np.ceil(width / step))


def integer_row(columns: Ints, coefficients: Floats, grid: IntegerGrid, continuous: Bools, what: str) -> IntegerRow:
    """A row in integers, at the first scale that is precise enough; powers of ten, exact for decimals, come first.

    Raises InputError when no scale is.
    """
    weights, tops = coefficients * grid.step[columns], grid.top[columns]
    reach = float(np.abs(weights) @ tops)
    finest = 1.0 / float(grid.step[columns].min(initial=1.0))
    for scale in (*(finest * 10.0**places for places in range(7)), *(2.0**bits for bits in range(64))):
        rounded = np.rint(weights * scale)
        rounding = float(np.abs(weights * scale - rounded) @ tops)
        if reach * scale <= MAGNITUDE and rounding <= PRECISION * scale * max(reach, SMALL):
            moving = 0.5 * scale * float(np.abs(weights[continuous[columns]]).sum())
            return IntegerRow(columns, rounded.astype(np.int64), scale, rounding + moving)
    raise InputError(
        f"CP-SAT cannot carry {what} in 64 bits: its coefficients and bounds span too many orders of magnitude",
        fix="narrow the bounds of its variables, or choose another back end",
    )


def integer_limits(line: IntegerRow, shift: float, lower: float, upper: float) -> tuple[int, int]:
    """The bounds of a row in integers, relaxed by its error. `shift` is a · origin."""
    low, high = (lower - shift) * line.scale, (upper - shift) * line.scale
    error = line.error + 1e-9 + NOISE * abs(shift) * line.scale
    least = np.ceil(low - error - NOISE * abs(low))
    most = np.floor(high + error + NOISE * abs(high))
    if least > most:  # no integer lies between them, and no activity is as large as this
        return int(OPEN), int(OPEN)
    return int(np.clip(least, -OPEN, OPEN)), int(np.clip(most, -OPEN, OPEN))
