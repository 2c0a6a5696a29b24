"""Cells: how quick a module is on so many ranks of one kind, from a part of its layouts (Crius, arXiv 2403.16125).

A cell has a number of stages, a power of two, and one of two ways to use the ranks of a stage: data parallelism alone,
or tp as wide as a node allows. A rank has one chunk of layers, or as many as there can be. ZeRO, recomputation and
micro-batches are as quick as they can be with each, by the closed form.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.layouts.screening.layout_screening import screen
from planner.layouts.screening.searched_parts import with_searched_parts
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace, layout_at
from planner.plan.plan_file import Layout
from planner.specs.parallelism import Parallelism


class Cell(NamedTuple):
    """The quickest layout of all cells, seconds of a step by the closed form, and how many layouts were priced."""

    layout: Layout
    seconds: float
    priced: int


def quickest_cell(problem: LayoutProblem, fixed: Parallelism) -> Cell | None:
    """The quickest of the cells with the fixed fields; None where none fits."""
    found = layouts_of(problem, fixed)
    ends = at_ends(found, problem.trained.ranks, problem.machine.network.per_node)
    screened = with_searched_parts(problem, screen(problem, {name: column[ends] for name, column in found.items()}))
    seconds = np.where(screened.fits(problem), screened.seconds, np.inf)
    if not np.isfinite(seconds).any():
        return None
    best = int(np.argmin(seconds))
    return Cell(layout_at(problem.trained, screened.layouts, best), float(seconds[best]), int(ends.sum()))


def at_ends(found: LayoutSpace, ranks: int, per_node: int) -> NDArray[np.bool_]:
    """Which layouts of a space are of cells."""
    pp, tp, vpp = found["pp"], found["tp"], found["vpp"]
    most = np.ones(ranks + 1, dtype=np.int64)
    np.maximum.at(most, pp, vpp)
    wide = np.minimum(ranks // pp, per_node)
    stages = (pp & (pp - 1)) == 0
    return np.asarray(stages & (found["cp"] == 1) & ((tp == 1) | (tp == wide)) & ((vpp == 1) | (vpp == most[pp])))
