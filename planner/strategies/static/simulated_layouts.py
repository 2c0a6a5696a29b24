"""The best layouts of a space by the closed form, then by simulation; and why the alternatives are worse."""

from dataclasses import dataclass, fields

import numpy as np

from planner.plan.descriptions import fixable_layout
from planner.plan.join_plans import round_digits
from planner.plan.mesh.synchronisation import sync_of
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.specs.inputs import Inputs
from planner.strategies.static.layout_fields import SEARCHED_FIELDS
from planner.strategies.static.layout_screening import (
    LayoutIndices,
    LayoutProblem,
    ScreenedLayouts,
    closed_form_parts,
    first_fitting,
)
from planner.strategies.static.layout_space import LayoutSpace, layout_at
from planner.strategies.static.static_plan import simulated_step_seconds, static_plan
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


def simulate_best(
    inputs: Inputs, problem: LayoutProblem, found: LayoutSpace, screened: ScreenedLayouts
) -> list[SimulatedLayout]:
    """The layouts that fit and are quickest by the closed form, simulated, quickest first."""
    order, count = np.argsort(screened.seconds, kind="stable"), SIMULATED[inputs.effort]
    if problem.trained.equal_lengths:
        quick = first_fitting(problem, found, screened, order, count)
    else:
        quick = distinct_kinds(found, first_fitting(problem, found, screened, order, len(order)))[:count]
    tried = [simulate_layout(inputs, problem, layout_at(problem.trained, found, int(place))) for place in quick]
    return sorted(tried, key=lambda each: (round_digits(each.seconds), tie_key(each.layout)))


def distinct_kinds(found: LayoutSpace, order: LayoutIndices) -> LayoutIndices:
    """The first layout of each mesh, micro-batch size and use of ZeRO-3, which unequal sequences affect differently."""
    kinds = np.stack([found[name][order] for name in ("tp", "cp", "pp", "micro_batch")] + [found["zero"][order] == 3])
    _, first = np.unique(kinds, axis=1, return_index=True)
    return order[np.sort(first)]


def tie_key(layout: Layout) -> tuple[object, ...]:
    """Sort key of ties: smaller degrees first."""
    return tuple(str(each) if name == "recompute" else each for name, each in searched_fields(layout).items())


def searched_fields(layout: Layout) -> dict[str, object]:
    """The searched fields of a layout."""
    return {name: getattr(layout, name) for name in SEARCHED_FIELDS}


def simulate_layout(inputs: Inputs, problem: LayoutProblem, layout: Layout) -> SimulatedLayout:
    """The layout as a plan, simulated."""
    plan = static_plan(inputs, problem, layout)
    return SimulatedLayout(layout, plan, simulated_step_seconds(plan, layout, problem.trained))


def layout_alternatives(
    module: str, problem: LayoutProblem, tried: list[SimulatedLayout], found: LayoutSpace, screened: ScreenedLayouts
) -> tuple[Alternative, ...]:
    """The next best meshes; and the quickest layout that does not fit."""
    chosen, *others = tried
    shown: list[Alternative] = []
    meshes = {mesh_of(chosen.layout)}
    for each in others:
        if mesh_of(each.layout) not in meshes and len(shown) < RUNNERS_UP:
            meshes.add(mesh_of(each.layout))
            shown.append(slower_alternative(module, problem, each, chosen))
    return (*shown, *infeasible_alternative(module, problem, chosen, found, screened))


def mesh_of(layout: Layout) -> tuple[int, ...]:
    """Degrees that distinguish alternatives."""
    return layout.tp, layout.cp, layout.pp, layout.ep, layout.etp


def slower_alternative(
    module: str, problem: LayoutProblem, tried: SimulatedLayout, chosen: SimulatedLayout
) -> Alternative:
    """An alternative that fits: its seconds, and the part of the step that grew most."""
    mine, best = closed_form_parts(problem, tried.layout), closed_form_parts(problem, chosen.layout)
    more = {field.name: float(getattr(mine, field.name) - getattr(best, field.name)) for field in fields(mine)}
    more["unequal"] = tried.seconds - float(mine.seconds) - (chosen.seconds - float(best.seconds))
    worst = max(more, key=lambda name: (more[name], name))
    share = percent(more[worst] / chosen.seconds)
    because = f"{percent(tried.seconds / chosen.seconds - 1.0)} slower: {share} of the step more {PART_NAMES[worst]}"
    return layout_alternative(module, tried.layout, round_digits(tried.seconds), because)


def infeasible_alternative(
    module: str, problem: LayoutProblem, chosen: SimulatedLayout, found: LayoutSpace, screened: ScreenedLayouts
) -> list[Alternative]:
    """The quickest layout that would be quicker than the chosen one but does not fit; empty if there is none."""
    quicker = (screened.seconds < chosen.seconds) & screened.memory_known & ~screened.fits(problem)
    if not quicker.any():
        return []
    place = int(np.argmin(np.where(quicker, screened.seconds, np.inf)))
    chance = f"would run out of memory with probability {screened.oom_chance[place]:.2f}"
    return [
        layout_alternative(
            module,
            layout_at(problem.trained, found, place),
            None,
            f"{chance}, and take {screened.seconds[place]:.3g} s",
        )
    ]


def layout_alternative(module: str, layout: Layout, seconds: float | None, because: str) -> Alternative:
    """A layout as an alternative of the plan; `seconds`: None where it is not feasible."""
    return Alternative(
        strategy="parallel_search",
        zero=layout.zero,
        sync=sync_of(layout),
        value=seconds,
        because=because,
        layouts={module: fixable_layout(layout)},
    )
