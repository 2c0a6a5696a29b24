"""The smallest change of a layout, or of what a job fixes of it, that fits into memory: quickest of the nearest."""

from dataclasses import dataclass

import numpy as np

from planner.errors import Infeasible
from planner.specs.job import StaticLayout
from planner.strategies.static.choice import RECOMPUTE, Choice, fixed_text
from planner.strategies.static.screen import Problem, Screened, first_fitting, timed
from planner.strategies.static.space import NAMES, Space, choice_at, space
from planner.units import GIB


@dataclass(frozen=True, slots=True)
class Change:
    """Another layout that fits, and what it has otherwise."""

    choice: Choice
    what: tuple[str, ...]  # tp 4
    seconds: float  # of a step, by the closed form
    taken: float  # bytes on the fullest rank


def smallest(problem: Problem, wanted: dict[str, int]) -> Change | None:
    """Of all layouts that fit, the quickest of those that have fewest of these fields otherwise; None: none fits."""
    found = space(problem.trained, problem.machine.wires.per_node, StaticLayout())
    if not len(found["tp"]):
        return None
    screened = timed(problem, found)
    away = sum(((found[name] != value).astype(int) for name, value in wanted.items()), np.zeros(len(screened.seconds)))
    place = first_fitting(problem, found, screened, np.lexsort((screened.seconds, away)), 1)
    return made(found, screened, int(place[0]), wanted) if len(place) else None


def made(found: Space, screened: Screened, place: int, wanted: dict[str, int]) -> Change:
    choice = choice_at(found, place)
    names = [name for name, value in wanted.items() if getattr(choice, name) != value]
    what = tuple(f"{name} {said(name, getattr(choice, name))}" for name in names)
    return Change(choice, what, float(screened.seconds[place]), float(screened.taken[place]))


def said(name: str, value: int) -> str:
    return RECOMPUTE[value] if name == "recompute" else str(value)


def fields_of(fixed: StaticLayout) -> dict[str, int]:
    """What a job fixes, as numbers of a choice."""
    given = {name: getattr(fixed, name) for name in NAMES if getattr(fixed, name) is not None}
    return {name: RECOMPUTE.index(value) if name == "recompute" else value for name, value in given.items()}


def nothing_fits(problem: Problem, found: Space, screened: Screened | None, fixed: StaticLayout) -> Infeasible:
    """What binds: that there is no such layout, or what the leanest of them takes; and what would free it."""
    change = smallest(problem, fields_of(fixed))
    ranks, batch = problem.trained.ranks, len(problem.trained.sizes)
    held = f" with {fixed_text(fixed)}" if fields_of(fixed) else ""
    fix = "more ranks, a smaller model, or shorter sequences"
    if change and change.what:
        fix = f"{', '.join(change.what)} instead"
    elif change is None and problem.trained.equal and screened is None:
        fix = "a batch that some number of replicas divides"
    if screened is None:
        message = f"no layout{held} shares {ranks} ranks and {batch} sequences out evenly"
        return Infeasible(message, where="layouts", fix=fix)
    place = int(np.nanargmin(screened.taken))
    least, allowed = screened.taken[place] / GIB, problem.allowed / GIB
    leanest = choice_at(found, place).text(ranks)
    message = f"no layout{held} fits: the leanest ({leanest}) takes {least:.1f} GiB of a rank's {allowed:.1f} GiB"
    return Infeasible(message, where="memory", fix=fix)
