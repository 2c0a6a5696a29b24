"""The plainest layout within the noise of predictions, and the conventional one, both from what was priced already.

The closed form ranks every layout by what is unusual about it (layouts/plainness.py) and, of as much, by seconds. From
the plainest on the first few of each number of points are simulated, until one takes no longer than the quickest by
more than the job's noise. Which few these are does not depend on how large that is: more noise never gives a less plain
layout. The conventional layout, which guides start with, is simulated beside them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from planner.errors import Infeasible
from planner.layouts import (
    DividedLayout,
    LayoutProblem,
    LayoutSpace,
    ScreenedLayouts,
    layout_at,
    layout_points,
    most_conventional,
    screen,
    table_points,
    with_usual_solutions,
)
from planner.plan.plan_file import Layout, Plan
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import DEFAULT_RANK_ORDER
from planner.strategies.static.simulated_layouts import NEAR, SimulatedLayout, simulate_layout, tie_key

OF_POINTS = {1: 1, 2: 2, 3: 4, 4: 8}  # layouts of each number of points that are simulated at most, by effort

Scored = Callable[[Plan], Plan]  # a plan with its outcome; raises Infeasible where it does not fit by simulation


class Candidate(NamedTuple):
    """A layout that fits by the closed form."""

    points: int
    seconds: float
    layout: Layout


class Chosen(NamedTuple):
    """A simulated layout and its plan with its outcome."""

    tried: SimulatedLayout
    plan: Plan


@dataclass(frozen=True, slots=True)
class PlainChoice:
    """What the layouts near the quickest are found from, and those that were simulated, by their text."""

    inputs: Inputs
    problem: LayoutProblem
    screened: ScreenedLayouts
    divided: Sequence[DividedLayout]
    known: dict[str, SimulatedLayout] = field(default_factory=dict)

    def plainest(self, quickest: Chosen, scored: Scored) -> Chosen:
        """The plainest layout that takes no longer than the quickest by more than the job's noise: of equally plain
        ones the quickest, then by text.
        """
        knobs, within = self.problem.knobs, 1.0 + self.inputs.job.within
        if within == 1.0:
            return quickest
        own = layout_points(quickest.tried.layout, knobs)
        most = within * NEAR * quickest.tried.priced
        listed = [each for each in self.candidates() if each.points < own and each.seconds <= most]
        near = [(layout_points(each.layout, knobs), each) for each in self.known.values()]
        levels = groupby(sorted(listed, key=lambda each: each.points), key=lambda each: each.points)
        for points, level in levels:
            tried = [self.simulated(each.layout, each.seconds) for each in level]
            tried += [each for at, each in near if at == points and each not in tried]
            for each in sorted(tried, key=lambda each: (each.seconds, tie_key(each.layout))):
                if each.seconds > within * quickest.tried.seconds:
                    break
                try:
                    return Chosen(each, scored(each.plan))
                except Infeasible:  # by simulation
                    continue
        return quickest

    def conventional(self) -> SimulatedLayout | None:
        """The conventional layout of those that fit by the closed form, simulated; None where none does."""
        fits, trained = self.screened.fits(self.problem), self.problem.trained
        if not fits.any():
            return None
        usual = with_usual_solutions(self.problem, self.screened.layouts)
        place = most_conventional(self.problem, usual, fits)
        solved = next(self.usually_solved({name: column[[place]] for name, column in usual.items()}), None)
        if solved:
            return self.simulated(solved.layout, solved.seconds)
        return self.simulated(layout_at(trained, self.screened.layouts, place), float(self.screened.seconds[place]))

    def simulated(self, layout: Layout, seconds: float) -> SimulatedLayout:
        """A layout simulated, if it is not yet; `seconds`: by the closed form."""
        key = str(layout)
        if key not in self.known:
            self.known[key] = simulate_layout(self.inputs, self.problem, layout, seconds)
        return self.known[key]

    def candidates(self) -> Iterator[Candidate]:
        """Yield the quickest few of each number of points: as they were solved; with the usual one of what was solved
        for; and of those whose stages are not even.
        """
        few, knobs, found = OF_POINTS[self.inputs.effort], self.problem.knobs, self.screened.layouts
        fits = self.screened.fits(self.problem)
        own = table_points(self.problem, found)
        for place in first_of_each(own, self.screened.seconds, fits, few):
            layout = layout_at(self.problem.trained, found, place)
            yield Candidate(layout_points(layout, knobs), float(self.screened.seconds[place]), layout)
        usual = with_usual_solutions(self.problem, found)
        points = table_points(self.problem, usual)
        places = first_of_each(points, self.screened.seconds, fits & (points < own), few)
        if places:
            yield from self.usually_solved({name: column[places] for name, column in usual.items()})
        seen = Counter[int]()
        for each in self.divided:
            points = layout_points(each.layout, knobs)
            seen[points] += 1
            if seen[points] <= few:
                yield Candidate(points, each.seconds, each.layout)

    def usually_solved(self, found: LayoutSpace) -> Iterator[Candidate]:
        """Yield layouts with the usual order of ranks, dispatch and overlap, where they fit."""
        trained = self.problem.trained
        fixed = with_fields(trained.fixed, rank_order=trained.fixed.rank_order or DEFAULT_RANK_ORDER)
        overlap = tuple(kind for kind in trained.overlap if kind != "ep")
        problem = replace(self.problem, trained=replace(trained, fixed=fixed, overlap=overlap))
        again = screen(problem, found)
        for place in np.flatnonzero(again.fits(problem) & np.isfinite(again.seconds)).tolist():
            layout = layout_at(problem.trained, again.layouts, place)
            yield Candidate(layout_points(layout, problem.knobs), float(again.seconds[place]), layout)


def first_of_each(points: np.ndarray, seconds: np.ndarray, able: np.ndarray, few: int) -> list[int]:
    """The places of the quickest few of each number of points among those that are able."""
    (places,) = np.nonzero(able)
    order = places[np.lexsort((seconds[places], points[places]))]
    starts = np.searchsorted(points[order], np.unique(points[order]))
    return sorted({int(order[at + more]) for at in starts for more in range(few) if at + more < len(order)})
