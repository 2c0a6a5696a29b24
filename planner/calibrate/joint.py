"""Traits of frameworks and paces of devices, fitted together on published step times.

Least squares of the logarithm of predicted over measured seconds, each source with about the same say however many
rows it has, robust against rows that are off, and drawn to priors (calibrate/knobs.py). Where a framework has traits of
its own from few rows, what is common to all of them is its prior: all are fitted as one first, then each apart.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.calibrate.knobs import Knob, Prior, Values, exponentials, knobs, pace_of, prior, with_pace, with_traits
from planner.costs.static.machine import Machine
from planner.published.case import Case
from planner.published.priced import Alike, alike, seconds

COMMON = "generic"  # the framework that all are, at first
OWN = ("shard_ms",)  # traits that say nothing of other frameworks
NOISE = 0.04, 0.4  # least and most standard deviation of the logarithm of a source's steps
DEVIATION = 1.4826  # of a normal distribution, the standard deviation over the median absolute deviation
ROWS = 15  # from so many on, more rows of a source say no more
KNEE = 3.0  # standard deviations beyond which a row pulls less
ROUNDS = 12
STEP = 1e-3  # of a logarithm, for differences
Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """Cases with their groups, and machines to put values into."""

    cases: Sequence[Case]
    groups: Sequence[Alike]
    machines: Sequence[Machine]  # of each group
    names: Sequence[Knob]
    priors: Sequence[Prior]

    def predicted(self, logs: Logs, groups: Sequence[int]) -> Logs:
        """Logarithms of seconds of all cases; those of other groups are 0."""
        values = exponentials(self.names, logs)
        found = np.ones(len(self.cases))
        for number in groups:
            group = self.groups[number]
            machine = fitted(self.machines[number], group.first, values)
            found[group.places] = seconds([replace(group, places=np.arange(len(group.places)))],
                                          len(group.places), lambda _, machine=machine: machine)  # fmt: skip
        return np.log(found)


def fitted(machine: Machine, case: Case, values: Values) -> Machine:
    """A machine with the values found for its framework and its device."""
    timing = with_traits(machine.timing, case.software, values)
    return replace(machine, timing=timing, rates=with_pace(machine.rates, case.device, values))


def fit(cases: Sequence[Case], machines: Sequence[Machine], start: Values | None = None) -> dict[Knob, float]:
    """`machines`: of each case. All frameworks as one, then each by itself near that."""
    as_one = problem([replace(case, software=COMMON) for case in cases], machines, {}, cases)
    common = solve(as_one, start or {}, noise(as_one, {}))
    apart = problem(cases, machines, common, cases)
    return common | solve(apart, common, noise(apart, common))


def noise(given: Problem, found: Values) -> Logs:
    """Of each row, by its source: how far the source's rows are off each other in what these values leave of them.

    Some sources say of themselves that they vary by tens of percent; they shall not outvote careful ones.
    """
    logs = np.array([log(found.get(k, p.value)) for k, p in zip(given.names, given.priors, strict=True)])
    off = given.predicted(logs, range(len(given.groups))) - measured(given.cases)
    sources = np.array([case.origin.source for case in given.cases])
    spread = np.zeros(len(off))
    for source in set(sources.tolist()):
        own = off[sources == source]
        spread[sources == source] = np.clip(np.median(np.abs(own - np.median(own))) * DEVIATION, *NOISE)
    return spread


def measured(cases: Sequence[Case]) -> Logs:
    return np.log([case.seconds or 1.0 for case in cases])


def problem(cases: Sequence[Case], machines: Sequence[Machine], common: Values, grouped_as: Sequence[Case]) -> Problem:
    """`grouped_as`: the cases by which to group, whose machines are alike."""
    groups = alike(grouped_as)
    names = knobs(cases)
    firsts = [replace(group, first=cases[group.places[0]]) for group in groups]
    return Problem(cases, firsts, [machines[group.places[0]] for group in groups], names, priors(names, common))


def priors(names: Sequence[Knob], common: Values) -> list[Prior]:
    """A framework's own traits are looked for near what is common to all."""
    found = []
    for knob in names:
        shared = None if knob.name in OWN else common.get(Knob(COMMON, knob.name))
        wide = prior(knob)
        found.append(Prior(shared, wide.width) if shared is not None else wide)
    return found


def solve(given: Problem, start: Values, spread: Logs) -> dict[Knob, float]:
    """The values of least loss; `spread`: of each row, the standard deviation of its logarithm."""
    target = measured(given.cases)
    weights = says(given.cases) / spread
    middle = np.array([log(each.value) for each in given.priors])
    widths = np.array([each.width for each in given.priors])
    everything = range(len(given.groups))

    def residuals(logs: Logs) -> Logs:
        off = weights * (given.predicted(logs, everything) - target)
        return np.concatenate([softened(off), (logs - middle) / widths])

    def slopes(logs: Logs) -> Logs:
        here = given.predicted(logs, everything)
        bend = softened_slope(weights * (here - target)) * weights
        found = np.zeros((len(given.cases) + len(logs), len(logs)))
        found[len(given.cases) :] = np.diag(1 / widths)
        for column, knob in enumerate(given.names):
            groups = [n for n in everything if depends(given.groups[n].first, knob)]
            moved = logs.copy()
            moved[column] += STEP
            there = given.predicted(moved, groups)
            for number in groups:
                places = given.groups[number].places
                found[places, column] = bend[places] * (there[places] - here[places]) / STEP
        return found

    first = np.array([log(start[k]) if k in start else m for k, m in zip(given.names, middle, strict=True)])
    result = least_squares(residuals, first, jac=slopes, max_nfev=ROUNDS, x_scale="jac")
    return exponentials(given.names, result.x)


def depends(case: Case, knob: Knob) -> bool:
    return knob.owner == case.software or knob.owner == pace_of(case).owner


def says(cases: Sequence[Case]) -> Logs:
    """The weight of each row: of a source with many rows, less."""
    rows = Counter(case.origin.source for case in cases)
    return np.array([1 / sqrt(max(1.0, rows[case.origin.source] / ROWS)) for case in cases])


def softened(off: Logs) -> Logs:
    """Residuals whose squares grow only in a straight line beyond the knee."""
    return np.sign(off) * KNEE * np.sqrt(2 * (np.sqrt(1 + (off / KNEE) ** 2) - 1))


def softened_slope(off: Logs) -> Logs:
    root = np.sqrt(1 + (off / KNEE) ** 2)
    return np.sqrt((root + 1) / 2) / root
