"""The best layouts of a space by the closed form, then by simulation; and why the alternatives are worse."""

from dataclasses import dataclass, fields

import numpy as np

from planner.plan.join import tidy
from planner.plan.model import Alternative, Layout, Plan
from planner.plan.words import spoken
from planner.specs.inputs import Inputs
from planner.strategies.static.laid import laid, step_seconds
from planner.strategies.static.layouts import SEARCHED
from planner.strategies.static.screen import Places, Problem, Screened, first_fitting, parts_of
from planner.strategies.static.space import Space, layout_at
from planner.units import percent

SIMULATED = {1: 4, 2: 8, 3: 24, 4: 96}  # layouts simulated, by effort
RUNNERS_UP = 3  # runners-up named in a plan
PART_NAMES = {
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
class SimulatedLayout:
    """A layout that was simulated, its plan and the seconds of its step."""

    layout: Layout
    plan: Plan
    seconds: float


def best_of(inputs: Inputs, problem: Problem, found: Space, screened: Screened) -> list[SimulatedLayout]:
    """The layouts that fit and are quickest by the closed form, simulated, quickest first."""
    order, count = np.argsort(screened.seconds, kind="stable"), SIMULATED[inputs.effort]
    if problem.trained.equal:
        quick = first_fitting(problem, found, screened, order, count)
    else:
        quick = unlike(found, first_fitting(problem, found, screened, order, len(order)))[:count]
    tried = [simulated(inputs, problem, layout_at(problem.trained, found, int(place))) for place in quick]
    return sorted(tried, key=lambda each: (tidy(each.seconds), tie_key(each.layout)))


def unlike(found: Space, order: Places) -> Places:
    """The first layout of each mesh, micro-batch size and use of ZeRO-3, which unequal sequences affect differently."""
    kinds = np.stack([found[name][order] for name in ("tp", "cp", "pp", "micro_batch")] + [found["zero"][order] == 3])
    _, first = np.unique(kinds, axis=1, return_index=True)
    return order[np.sort(first)]


def tie_key(layout: Layout) -> tuple[object, ...]:
    """Sort key of ties: smaller degrees first."""
    return tuple(str(each) if name == "recompute" else each for name, each in searched_fields(layout).items())


def searched_fields(layout: Layout) -> dict[str, object]:
    """The searched fields of a layout."""
    return {name: getattr(layout, name) for name in SEARCHED}


def simulated(inputs: Inputs, problem: Problem, layout: Layout) -> SimulatedLayout:
    """The layout as a plan, simulated."""
    plan = laid(inputs, problem, layout)
    return SimulatedLayout(layout, plan, step_seconds(plan, layout, problem.trained))


def instead(
    module: str, problem: Problem, tried: list[SimulatedLayout], found: Space, screened: Screened
) -> tuple[Alternative, ...]:
    """The next best meshes; and the quickest layout that does not fit."""
    chosen, *others = tried
    shown: list[Alternative] = []
    meshes = {mesh(chosen.layout)}
    for each in others:
        if mesh(each.layout) not in meshes and len(shown) < RUNNERS_UP:
            meshes.add(mesh(each.layout))
            shown.append(slower(module, problem, each, chosen))
    return (*shown, *infeasible_alternative(module, problem, chosen, found, screened))


def mesh(layout: Layout) -> tuple[int, ...]:
    """Degrees that distinguish alternatives."""
    return layout.tp, layout.cp, layout.pp, layout.ep, layout.etp


def slower(module: str, problem: Problem, tried: SimulatedLayout, chosen: SimulatedLayout) -> Alternative:
    """An alternative that fits: its seconds, and the part of the step that grew most."""
    mine, best = parts_of(problem, tried.layout), parts_of(problem, chosen.layout)
    more = {field.name: float(getattr(mine, field.name) - getattr(best, field.name)) for field in fields(mine)}
    more["unequal"] = tried.seconds - float(mine.seconds) - (chosen.seconds - float(best.seconds))
    worst = max(more, key=lambda name: (more[name], name))
    share = percent(more[worst] / chosen.seconds)
    because = f"{percent(tried.seconds / chosen.seconds - 1.0)} slower: {share} of the step more {PART_NAMES[worst]}"
    return said(module, tried.layout, tidy(tried.seconds), because)


def infeasible_alternative(
    module: str, problem: Problem, chosen: SimulatedLayout, found: Space, screened: Screened
) -> list[Alternative]:
    """The quickest layout that would be quicker than the chosen one but does not fit; empty if there is none."""
    quicker = (screened.seconds < chosen.seconds) & screened.looked & ~screened.fits(problem)
    if not quicker.any():
        return []
    place = int(np.argmin(np.where(quicker, screened.seconds, np.inf)))
    chance = f"would run out of memory with probability {screened.chance[place]:.2f}"
    return [
        said(
            module,
            layout_at(problem.trained, found, place),
            None,
            f"{chance}, and take {screened.seconds[place]:.3g} s",
        )
    ]


def said(module: str, layout: Layout, seconds: float | None, because: str) -> Alternative:
    """A layout as an alternative of the plan; `seconds`: None where it is not feasible."""
    return Alternative(
        strategy="parallel_search",
        zero=layout.zero,
        sync="micro_batch" if layout.zero == 3 else "step",
        value=seconds,
        because=because,
        layouts={module: spoken(layout)},
    )
