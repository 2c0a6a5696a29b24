"""Traits of frameworks and paces of devices, fitted together on published step times.

Least squares of the logarithm of predicted over measured seconds, each source with about the same say however many
records it has, robust against records that are off, and drawn to priors (calibrate/knobs.py). Where a framework has traits of
its own from few records, what is common to all of them is its prior: all are fitted as one first, then each apart.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.extra import require_scipy
from planner.calibrate.knobs import (
    COMMON,
    OWN,
    PACES,
    Knob,
    Prior,
    Values,
    knobs,
    pace_of,
    prior,
    with_pace,
    with_traits,
)
from planner.costs.compute.machine import Machine
from planner.costs.step.step import step_seconds
from planner.published.case import Case
from planner.published.priced import Alike, alike

NOISE = 0.04, 0.4  # least and most standard deviation of the logarithm of a source's steps
DEVIATION = 1.4826  # of a normal distribution, the standard deviation over the median absolute deviation
ROWS = 15  # from so many on, more records of a source say no more
KNEE = 3.0  # standard deviations beyond which a record pulls less
REFITS = 2  # with the noise that the fit before has left
ROUNDS = 12
ENOUGH = 1e-4  # relative gain of a round, below which no other follows
TELLING = 0.9  # of a prior's width: what is left of it where records tell something
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
    held: Values  # of what is not looked for
    most: int  # records of a source that count in full

    def predicted(self, logs: Logs) -> Logs:
        """Logarithms of the cases' seconds."""
        found = np.zeros(len(self.cases))
        for group, machine in zip(self.groups, self.machines, strict=True):
            found[group.places] = self.of(group, machine, logs)
        return found

    def slopes(self, logs: Logs) -> Logs:
        """[cases, names]: what each name's logarithm does to each case's; one pass for all names of a group."""
        found = np.zeros((len(self.cases), len(self.names)))
        for group, machine in zip(self.groups, self.machines, strict=True):
            columns = [number for number, knob in enumerate(self.names) if depends(group.first, knob)]
            moved = np.tile(logs, (len(columns) + 1, 1))
            moved[range(len(columns)), columns] += STEP
            there = self.of(group, machine, moved)
            found[group.places[:, None], columns] = (there[:-1] - there[-1]).T / STEP
        return found

    def of(self, group: Alike, machine: Machine, logs: Logs) -> Logs:
        """Of one group's cases [..., cases], for values [..., names]."""
        values = dict(zip(self.names, np.moveaxis(np.exp(logs), -1, 0)[..., None], strict=True))
        made = fitted(machine, group.first, {**self.held, **values})
        return np.asarray(np.log(step_seconds(group.first.module, group.setup, made).seconds))


@dataclass(frozen=True, slots=True)
class Found:
    """Values, and of the logarithm of each the standard deviation that the records and its prior leave."""

    values: dict[Knob, float]
    widths: dict[Knob, float]

    def held(self, knob: Knob) -> bool:
        """Whether the records say next to nothing of it: it stands near its prior."""
        return self.widths.get(knob, prior(knob).width) > TELLING * prior(knob).width


def predicted(cases: Sequence[Case], machines: Sequence[Machine], values: Values) -> Logs:
    """Seconds of each case. What is common to all frameworks stands for one that has no values of its own."""
    found = np.zeros(len(cases))
    for group in alike(cases):
        made = fitted(machines[group.places[0]], group.first, values)
        found[group.places] = step_seconds(group.first.module, group.setup, made).seconds
    return found


def fitted(machine: Machine, case: Case, values: Values) -> Machine:
    """A machine with the values found for its framework and its device."""
    owner = case.software if any(knob.owner == case.software for knob in values) else COMMON
    timing = with_traits(machine.timing, owner, values)
    return replace(machine, timing=timing, rates=with_pace(machine.rates, case.device, values))


def fit(cases: Sequence[Case], machines: Sequence[Machine], start: Values | None = None, most: int = ROWS) -> Found:
    """`machines`: of each case. All frameworks as one, with their devices' paces; then each by itself near that, with
    the same paces, so that what is common to all remains what a framework that nobody measured is like. `most`: records
    of one source that count in full.
    """
    as_one = problem([replace(case, software=COMMON) for case in cases], machines, {}, cases, most)
    common = solve(as_one, start or {}, noise(as_one, {}))
    apart = problem(cases, machines, common.values, cases, most)
    found = common
    for _ in range(REFITS):
        own = solve(apart, {**(start or {}), **found.values}, noise(apart, found.values))
        found = Found(common.values | own.values, common.widths | own.widths)
    return found


def noise(given: Problem, found: Values) -> Logs:
    """Of each record, by its source: how far the source's records are off, with these values.

    Some sources say of themselves that they vary by tens of percent, others measured something else than they say; they
    shall not outvote those that agree with most.
    """
    logs = np.array([log(found.get(k, p.value)) for k, p in zip(given.names, given.priors, strict=True)])
    off = given.predicted(logs) - measured(given.cases)
    sources = np.array([case.origin.source for case in given.cases])
    spread = np.zeros(len(off))
    for source in set(sources.tolist()):
        own = off[sources == source]
        spread[sources == source] = np.clip(np.median(np.abs(own)) * DEVIATION, *NOISE)
    return spread


def measured(cases: Sequence[Case]) -> Logs:
    return np.log([case.seconds or 1.0 for case in cases])


def problem(
    cases: Sequence[Case], machines: Sequence[Machine], common: Values, grouped_as: Sequence[Case], most: int
) -> Problem:
    """`grouped_as`: the cases by which to group, whose machines are alike."""
    groups = alike(grouped_as)
    names = [knob for knob in knobs(cases) if not (common and knob.name in PACES)]
    firsts = [replace(group, first=cases[group.places[0]]) for group in groups]
    those = [machines[group.places[0]] for group in groups]
    return Problem(cases, firsts, those, names, priors(names, common), common, most)


def priors(names: Sequence[Knob], common: Values) -> list[Prior]:
    """A framework's own traits are looked for near what is common to all."""
    found = []
    for knob in names:
        shared = None if knob.name in OWN else common.get(Knob(COMMON, knob.name))
        wide = prior(knob)
        found.append(Prior(shared, wide.width) if shared is not None else wide)
    return found


def solve(given: Problem, start: Values, spread: Logs) -> Found:
    """The values of least loss; `spread`: of each record, the standard deviation of its logarithm."""
    require_scipy()
    from scipy.optimize import least_squares

    target = measured(given.cases)
    weights = says(given.cases, given.most) / spread
    middle = np.array([log(each.value) for each in given.priors])
    widths = np.array([each.width for each in given.priors])

    def residuals(logs: Logs) -> Logs:
        off = weights * (given.predicted(logs) - target)
        return np.concatenate([softened(off), (logs - middle) / widths])

    def slopes(logs: Logs) -> Logs:
        bend = softened_slope(weights * (given.predicted(logs) - target)) * weights
        return np.concatenate([bend[:, None] * given.slopes(logs), np.diag(1 / widths)])

    first = np.array([log(start[k]) if k in start else m for k, m in zip(given.names, middle, strict=True)])
    result = least_squares(residuals, first, jac=slopes, max_nfev=ROUNDS, x_scale="jac", ftol=ENOUGH)
    sure = np.sqrt(np.diag(np.linalg.inv(result.jac.T @ result.jac)))
    return Found(
        dict(zip(given.names, np.exp(result.x).tolist(), strict=True)),
        dict(zip(given.names, sure.tolist(), strict=True)),
    )


def depends(case: Case, knob: Knob) -> bool:
    return knob.owner == case.software or knob.owner == pace_of(case).owner


def says(cases: Sequence[Case], most: int) -> Logs:
    """The weight of each record: of a source with more records than this, less."""
    rows = Counter(case.origin.source for case in cases)
    return np.array([1 / sqrt(max(1.0, rows[case.origin.source] / most)) for case in cases])


def softened(off: Logs) -> Logs:
    """Residuals whose squares grow only in a straight line beyond the knee."""
    return np.asarray(np.sign(off) * KNEE * np.sqrt(2 * (np.sqrt(1 + (off / KNEE) ** 2) - 1)))


def softened_slope(off: Logs) -> Logs:
    root = np.sqrt(1 + (off / KNEE) ** 2)
    return np.asarray(np.sqrt((root + 1) / 2) / root)
