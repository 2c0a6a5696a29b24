"""The plainest layout within the noise of predictions, and the conventional one, from what was priced already.

The closed form ranks every layout by what is unusual about it (layouts/space/plainness.py) and, of as much, by seconds.
From the plainest on the first few of each number of points are simulated, until one takes no longer than the quickest
by more than the job's noise. Which few these are does not depend on how large that is: more noise never gives a less
plain layout. The conventional layout, which guides start with, is simulated beside them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from planner.strategies.one_module.simulated_layouts import NEAR, simulate_layout, tie_key
from planner.strategies.static.tried_layouts import TriedLayouts

OF_POINTS = {1: 1, 2: 2, 3: 4, 4: 8}  # layouts of each number of points that are simulated at most, by effort

Scored = Callable[[TriedLayouts], Plan]  # its plan with its outcome; raises Infeasible


class Candidate(NamedTuple):
    """A layout that fits by the closed form, and the seconds of its step by that."""

    seconds: float
    layout: Layout


@dataclass(frozen=True, slots=True)
class PlainChoice:
    """What the layouts near the quickest are found from, and those that were simulated, by their text."""

    inputs: Inputs
    problem: LayoutProblem
    screened: ScreenedLayouts
    divided: Sequence[DividedLayout]
    known: dict[str, TriedLayouts] = field(default_factory=dict)

    def plainest(self, quickest: TriedLayouts, scored: Scored) -> TriedLayouts:
        """The plainest layout that takes no longer than the quickest by more than the job's noise: of equally plain
        ones the quickest, then by text.
        """
        knobs, within = self.problem.knobs, 1.0 + self.inputs.job.within
        levels = defaultdict[int, list[Candidate]](list)
        for each in self.candidates() if within > 1.0 else ():
            if each.seconds <= within * NEAR * quickest.estimate:
                levels[layout_points(each.layout, knobs)].append(each)
        for points in sorted(each for each in levels if each < layout_points(quickest.layout, knobs)):
            tried = map(
                self.simulated,
                sorted(levels[points], key=lambda each: each.seconds)[: 2 * OF_POINTS[self.inputs.effort]],
            )
            for one in sorted(tried, key=lambda one: (one.seconds, tie_key(one.layout))):
                if one.seconds <= within * quickest.seconds:
                    try:
                        return replace(one, plan=scored(one))
                    except Infeasible:  # by simulation
                        continue
        return quickest

    def conventional(self) -> TriedLayouts | None:
        """The conventional layout of those that fit by the closed form, simulated; None where none does."""
        fits = self.screened.fits(self.problem)
        if not fits.any():
            return None
        usual = with_usual_solutions(self.problem, self.screened.layouts)
        place = most_conventional(self.problem, usual, fits)
        solved = next(self.usually_solved({name: column[[place]] for name, column in usual.items()}), None)
        return self.simulated(solved or self.candidate(place))

    def simulated(self, each: Candidate) -> TriedLayouts:
        """A candidate simulated, if it is not yet."""
        key = str(each.layout)
        if key not in self.known:
            self.known[key] = simulate_layout(self.inputs, each.layout, each.seconds)
        return self.known[key]

    def candidate(self, place: int) -> Candidate:
        """One of the layouts with even stages."""
        return Candidate(
            float(self.screened.seconds[place]), layout_at(self.problem.trained, self.screened.layouts, place)
        )

    def candidates(self) -> Iterator[Candidate]:
        """Yield the quickest few of each number of points: as they were solved; with the usual one of what was solved
        for; and those whose stages are not even.
        """
        few, found = OF_POINTS[self.inputs.effort], self.screened.layouts
        fits, usual = self.screened.fits(self.problem), with_usual_solutions(self.problem, found)
        own, points = (table_points(self.problem, each) for each in (found, usual))
        yield from map(self.candidate, first_of_each(own, self.screened.seconds, fits, few))
        places = first_of_each(points, self.screened.seconds, fits & (points < own), few)
        if places:
            yield from self.usually_solved({name: column[places] for name, column in usual.items()})
        yield from (Candidate(each.seconds, each.layout) for each in self.divided)

    def usually_solved(self, found: LayoutSpace) -> Iterator[Candidate]:
        """Yield layouts with the usual order of ranks, dispatch and overlap, where they fit."""
        trained = self.problem.trained
        fixed = with_fields(trained.fixed, rank_order=trained.fixed.rank_order or DEFAULT_RANK_ORDER)
        overlap = tuple(kind for kind in trained.overlap if kind != "ep")
        problem = replace(self.problem, trained=replace(trained, fixed=fixed, overlap=overlap))
        again = screen(problem, found)
        for place in np.flatnonzero(again.fits(problem) & np.isfinite(again.seconds)).tolist():
            yield Candidate(float(again.seconds[place]), layout_at(problem.trained, again.layouts, place))


def first_of_each(points: np.ndarray, seconds: np.ndarray, able: np.ndarray, few: int) -> list[int]:
    """The places of the quickest few of each number of points among those that are able."""
    (places,) = np.nonzero(able)
    order = places[np.lexsort((seconds[places], points[places]))]
    starts = np.searchsorted(points[order], np.unique(points[order]))
    return sorted({int(order[at + more]) for at in starts for more in range(few) if at + more < len(order)})
