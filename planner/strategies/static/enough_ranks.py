"""The least number of ranks on which some layout of a job fits: whole nodes of the same kind, and the same batch.

The number doubles until something fits, then halves in between: on one node less nothing does. That more ranks need
not fit what fewer do, where the batch or the heads do not divide, may hide a smaller number yet.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs import NetworkLevel
from planner.layouts import LayoutProblem, LayoutSpace, anything_fits, layout_at, layouts_of, screen
from planner.plan.plan_file import Layout

MOST_TIMES = 16  # as many ranks as there are, at most


class EnoughRanks(NamedTuple):
    """A number of ranks, and the quickest layout that fits on them by the closed form."""

    ranks: int
    layout: Layout


def enough_ranks(problem: LayoutProblem) -> EnoughRanks | None:
    """The least number of ranks on which a layout fits that has what the job fixes; None where none up to MOST_TIMES
    as many does. The job's own ranks are known not to do.
    """
    per_node = problem.machine.network.per_node
    few = -(-problem.trained.ranks // per_node)
    most, many = MOST_TIMES * few, 2 * few
    while not fits_on(problem, many * per_node):
        few, many = many, 2 * many
        if many > most:
            return None
    while many - few > 1:
        nodes = (few + many) // 2
        few, many = (few, nodes) if fits_on(problem, nodes * per_node) else (nodes, many)
    return EnoughRanks(many * per_node, quickest_layout(on_ranks(problem, many * per_node)))


def on_ranks(problem: LayoutProblem, ranks: int) -> LayoutProblem:
    """The problem on so many ranks. The widest level joins them all; nodes that no level joins yet are joined as the
    ranks within them.
    """
    *nearer, widest = problem.machine.network.levels
    joined = NetworkLevel(max(widest.ranks, ranks), widest.gb_per_s, widest.us)
    levels = (*nearer, joined) if nearer else (widest, joined)
    network = replace(problem.machine.network, levels=levels, cached_costs={}, cached_links={})
    trained = replace(problem.trained, ranks=ranks)
    return replace(problem, trained=trained, machine=replace(problem.machine, network=network))


def fits_on(problem: LayoutProblem, ranks: int) -> bool:
    """Whether any layout fits on so many ranks."""
    wider = on_ranks(problem, ranks)
    return anything_fits(wider, layouts_on(wider))


def layouts_on(problem: LayoutProblem) -> LayoutSpace:
    """The layouts that have what the job fixes."""
    return layouts_of(problem, problem.trained.fixed)


def quickest_layout(problem: LayoutProblem) -> Layout:
    """The layout that fits and is quickest by the closed form."""
    screened = screen(problem, layouts_on(problem))
    place = int(np.argmin(np.where(screened.fits(problem), screened.seconds, np.inf)))
    return layout_at(problem.trained, screened.layouts, place)
