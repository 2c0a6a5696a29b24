"""The best layouts of a space by the closed form, then by simulation; and why the alternatives are worse."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from planner.costs import distinct_values
from planner.layouts import (
    SCHEDULE,
    SEARCHED_FIELDS,
    DividedLayout,
    LayoutBounds,
    LayoutIndices,
    LayoutProblem,
    LayoutSpace,
    ScreenedLayouts,
    closed_form_parts,
    layout_at,
    spread_otherwise,
)
from planner.plan.descriptions import fixable_layout
from planner.plan.join_plans import round_digits
from planner.plan.mesh.synchronisation import sync_of
from planner.plan.plan_file import Alternative, Layout
from planner.scoring import least_expected, plan_doubt, step_seconds
from planner.specs.inputs import Inputs
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.strategies.static.tried_layouts import TriedLayouts, why_not_chosen
from planner.units import percent

SIMULATED = {1: 4, 2: 8, 3: 24, 4: 96}  # layouts simulated at most, by effort
NEAR = 1.005  # times the quickest by the closed form: other layouts are simulated as well, for what it does not know
DIVIDED = {1: 1, 2: 3, 3: 6, 4: 24}  # of these, with stages that are not even
OF_UNEQUAL = 4  # times as many where sequences are unequal, of whose micro-batches the closed form knows less
RUNNERS_UP = 3  # runners-up named in a plan
PART_NAMES = {
    "compute": "compute",
    "tp": "exchange of tensor parallelism",
    "cp": "exchange within sequences",
    "ep": "exchange with experts",
    "pp": "sending between stages",
    "bubble": "bubble",
    "dp": "exchange among replicas",
    "update": "update",
    "overhead": "overhead",
    "unequal": "waiting for the longest sequences",
}


def simulate_best(
    inputs: Inputs,
    problem: LayoutProblem,
    screened: ScreenedLayouts,
    bounds: LayoutBounds,
    divided: Sequence[DividedLayout],
) -> list[TriedLayouts]:
    """The layouts that fit and are quickest by the closed form, simulated, quickest first; those whose stages are not
    even (`divided`) before others. A layout that is expected to take as long as the best so far, even at its bound, is
    left out, unless its mesh is one of the few that the plan shows beside the best.
    """
    order = np.argsort(screened.seconds, kind="stable")
    order = order[screened.fits(problem)[order]]
    even = screened.seconds[order[0]] if len(order) else np.inf
    able = [each for each in divided if not each.plainer and each.seconds < NEAR * even]
    tried = simulated_divisions(inputs, problem, able)
    equal = problem.trained.equal_lengths
    most = SIMULATED[inputs.effort] * (1 if equal else OF_UNEQUAL)
    for place in distinct_kinds(screened.layouts, order, equal)[:most]:
        layout = layout_at(problem.trained, screened.layouts, int(place))
        meshes = {mesh_of(each.layout) for each in tried}
        shown = len(meshes) > RUNNERS_UP or mesh_of(layout) in meshes
        known = problem.by_rates and tried and shown
        if not (known and is_beaten(inputs, layout, bounds.seconds[place], tried)):
            tried.append(simulate_layout(inputs, layout, float(screened.seconds[place])))
    return sorted(tried, key=lambda each: (each.seconds, tie_key(each.layout)))


def simulated_divisions(inputs: Inputs, problem: LayoutProblem, divided: Sequence[DividedLayout]) -> list[TriedLayouts]:
    """The quickest of a few meshes, of several that come quickest first, simulated; and the best of these with its
    layers spread over chunks otherwise.
    """
    of_mesh = {each.mesh: each for each in reversed(divided)}
    some = sorted(of_mesh.values(), key=lambda each: each.seconds)[: DIVIDED[inputs.effort]]
    tried = [simulate_layout(inputs, each.layout, each.seconds) for each in some]
    if not tried:
        return []
    best = some[min(range(len(tried)), key=lambda number: tried[number].seconds)]
    others = spread_otherwise(problem, best)
    return [*tried, *(simulate_layout(inputs, each, best.seconds) for each in others)]


def is_beaten(inputs: Inputs, layout: Layout, least: float, tried: Sequence[TriedLayouts]) -> bool:
    """Whether a layout that takes at least so many seconds is expected to take no less than the best so far."""
    best = least_expected(tried, lambda each: each.seconds, lambda each: each.doubt)
    assert best and best.plan, "of several, one is chosen"
    return least * plan_doubt(best.plan, {inputs.module: layout}) >= best.seconds * best.doubt


def distinct_kinds(found: LayoutSpace, order: LayoutIndices, equal_lengths: bool) -> LayoutIndices:
    """The first layout of each mesh, micro-batch size and schedule; of unequal sequences with each use of ZeRO-3 as
    well, which these affect differently. Others of the same mesh differ by little that the closed form does not know.
    """
    names = ("tp", "cp", "pp", "micro_batch", SCHEDULE) if not equal_lengths else (*SEARCHED_FIELDS, SCHEDULE)
    if not len(order):
        return order
    first, _ = distinct_values([*(found[name][order] for name in names), found["zero"][order] == 3])
    return order[np.sort(first)]


def tie_key(layout: Layout) -> tuple[object, ...]:
    """Sort key of ties: smaller degrees first."""
    return tuple(str(each) if name == "recompute" else each for name, each in searched_fields(layout).items())


def searched_fields(layout: Layout) -> dict[str, object]:
    """The searched fields of a layout."""
    return {name: getattr(layout, name) for name in SEARCHED_FIELDS}


def simulate_layout(inputs: Inputs, layout: Layout, priced: float = np.inf) -> TriedLayouts:
    """The layout as a plan, simulated; `priced`: the seconds of its step by the closed form."""
    plan = draft_of_layouts(inputs, {inputs.module: layout})
    seconds = round_digits(step_seconds(plan))
    return TriedLayouts(plan.layouts, plan=plan, seconds=seconds, estimate=priced)


def layout_alternatives(
    module: str,
    problem: LayoutProblem,
    chosen: TriedLayouts,
    others: Sequence[TriedLayouts],
    screened: ScreenedLayouts,
) -> tuple[Alternative, ...]:
    """The next best meshes, the first of `others` in any case where it is predicted quicker than the chosen one; and
    the quickest layout that does not fit.
    """
    shown: list[Alternative] = []
    meshes = {mesh_of(chosen.layout)}
    for number, each in enumerate(others):
        quickest = number == 0 and each.seconds < chosen.seconds
        if quickest or (mesh_of(each.layout) not in meshes and len(shown) < RUNNERS_UP):
            meshes.add(mesh_of(each.layout))
            shown.append(simulated_alternative(module, problem, each, chosen))
    return (*shown, *infeasible_alternative(module, problem, chosen, screened))


def mesh_of(layout: Layout) -> tuple[int, ...]:
    """Degrees that distinguish alternatives."""
    return layout.tp, layout.cp, layout.pp, layout.ep, layout.etp


def simulated_alternative(
    module: str, problem: LayoutProblem, tried: TriedLayouts, chosen: TriedLayouts
) -> Alternative:
    """An alternative that fits: its seconds, and why it was not chosen."""
    because = why_not_chosen(tried, chosen, slower_text(problem, tried, chosen))
    return layout_alternative(module, tried.layout, tried.seconds, because)


def slower_text(problem: LayoutProblem, tried: TriedLayouts, chosen: TriedLayouts) -> str:
    """The part of the step by which an alternative is slower most."""
    mine, best = closed_form_parts(problem, tried.layout), closed_form_parts(problem, chosen.layout)
    more = {field.name: float(getattr(mine, field.name) - getattr(best, field.name)) for field in fields(mine)}
    more["unequal"] = tried.seconds - float(mine.seconds) - (chosen.seconds - float(best.seconds))
    worst = max(more, key=lambda name: (more[name], name))
    return f"{percent(more[worst] / chosen.seconds)} of the step more {PART_NAMES[worst]}"


def infeasible_alternative(
    module: str, problem: LayoutProblem, chosen: TriedLayouts, screened: ScreenedLayouts
) -> list[Alternative]:
    """The quickest layout that would be quicker than the chosen one but does not fit; empty if there is none."""
    quicker = (screened.seconds < chosen.seconds) & ~screened.fits(problem)
    if not quicker.any():
        return []
    place = int(np.argmin(np.where(quicker, screened.seconds, np.inf)))
    chance = f"would run out of memory with probability {screened.oom_chance(problem, place):.2f}"
    return [
        layout_alternative(
            module,
            layout_at(problem.trained, screened.layouts, place),
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
