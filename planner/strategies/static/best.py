"""The best layouts of a space by the closed form, then by simulating them; and why the others are worse."""

from dataclasses import dataclass, fields

import numpy as np

from planner.plan.join import tidy
from planner.plan.model import Instead, Plan
from planner.specs.inputs import Inputs
from planner.strategies.static.choice import Choice
from planner.strategies.static.laid import laid, step_seconds
from planner.strategies.static.screen import Places, Problem, Screened, first_fitting, parts_of
from planner.strategies.static.space import Space, choice_at
from planner.units import percent

SIMULATED = {1: 4, 2: 8, 3: 24, 4: 96}  # layouts, by effort
SHOWN = 3  # runners-up in a plan
WORDS = {
    "compute": "compute",
    "tp": "exchange of tensor parallelism",
    "cp": "exchange of the ring",
    "ep": "exchange with experts",
    "pp": "sending between stages",
    "bubble": "bubble",
    "dp": "exchange among replicas",
    "update": "update",
    "overhead": "overhead",
    "unequal": "waiting for the longest sequences",
}


@dataclass(frozen=True, slots=True)
class Tried:
    """A layout that was simulated."""

    choice: Choice
    plan: Plan
    seconds: float


def best_of(inputs: Inputs, problem: Problem, found: Space, screened: Screened) -> list[Tried]:
    """Those that fit and are quickest by the closed form, simulated, quickest first."""
    order, count = np.argsort(screened.seconds, kind="stable"), SIMULATED[inputs.effort]
    if problem.trained.equal:
        quick = first_fitting(problem, found, screened, order, count)
    else:
        quick = unlike(found, first_fitting(problem, found, screened, order, len(order)))[:count]
    tried = [simulated(inputs, problem, choice_at(found, int(place))) for place in quick]
    return sorted(tried, key=lambda each: (tidy(each.seconds), each.choice))


def unlike(found: Space, order: Places) -> Places:
    """Of layouts in this order, the first of each kind that unequal sequences suit differently."""
    kinds = np.stack([found[name][order] for name in ("tp", "cp", "pp", "micro_batch")] + [found["zero"][order] == 3])
    _, first = np.unique(kinds, axis=1, return_index=True)
    return order[np.sort(first)]


def simulated(inputs: Inputs, problem: Problem, choice: Choice) -> Tried:
    plan = laid(inputs, problem, choice)
    return Tried(choice, plan, step_seconds(plan, choice, problem.trained))


def instead(problem: Problem, tried: list[Tried], found: Space, screened: Screened) -> tuple[Instead, ...]:
    """The next best ways to part the ranks; and the quickest layout of all that does not fit."""
    chosen, *others = tried
    shown: list[Instead] = []
    meshes = {mesh(chosen.choice)}
    for each in others:
        if mesh(each.choice) not in meshes and len(shown) < SHOWN:
            meshes.add(mesh(each.choice))
            shown.append(slower(problem, each, chosen))
    return (*shown, *too_large(problem, chosen, found, screened))


def mesh(choice: Choice) -> tuple[int, ...]:
    return choice.tp, choice.cp, choice.pp, choice.ep, choice.etp


def slower(problem: Problem, tried: Tried, chosen: Tried) -> Instead:
    """What it takes, and which part of it has grown most."""
    mine, best = parts_of(problem, tried.choice), parts_of(problem, chosen.choice)
    more = {field.name: float(getattr(mine, field.name) - getattr(best, field.name)) for field in fields(mine)}
    more["unequal"] = tried.seconds - float(mine.seconds) - (chosen.seconds - float(best.seconds))
    worst = max(more, key=lambda name: (more[name], name))
    share = percent(more[worst] / chosen.seconds)
    because = f"{percent(tried.seconds / chosen.seconds - 1.0)} slower: {share} of the step more {WORDS[worst]}"
    return said(problem, tried.choice, tidy(tried.seconds), because)


def too_large(problem: Problem, chosen: Tried, found: Space, screened: Screened) -> list[Instead]:
    """Of layouts that would be quicker than the chosen one, the quickest."""
    quicker = (screened.seconds < chosen.seconds) & screened.looked & ~screened.fits(problem)
    if not quicker.any():
        return []
    place = int(np.argmin(np.where(quicker, screened.seconds, np.inf)))
    chance = f"would run out of memory with probability {screened.chance[place]:.2f}"
    return [said(problem, choice_at(found, place), None, f"{chance}, and take {screened.seconds[place]:.3g} s")]


def said(problem: Problem, choice: Choice, seconds: float | None, because: str) -> Instead:
    return Instead(
        strategy="parallel_search",
        zero=choice.zero,
        sync="micro_batch" if choice.zero == 3 else "step",
        value=seconds,
        because=because,
        layout=choice.text(problem.trained.ranks),
    )
