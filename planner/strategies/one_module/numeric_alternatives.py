"""Alternatives that change numerics, which a search never chooses by itself: products in fp8, gradients sent in bf16.

Each is listed where the job leaves its field unsaid, its framework has it, the device's profile prices it, and it is
quicker. Of the layouts that are quickest without it the closed form finds the quickest with it, their recomputed layers
solved for anew; that one alone is simulated, and nothing where the closed form sees no gain. It fits by the closed
form, as the other alternatives do.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from planner.errors import Infeasible, InputError
from planner.layouts import LayoutProblem, ScreenedLayouts, layout_at, screen
from planner.plan.join_plans import round_digits
from planner.plan.launchable.launch_refusals import unlaunchable_error
from planner.plan.mesh.synchronisation import reduces_gradients
from planner.plan.plan_file import Alternative, Layout
from planner.scoring import score, step_seconds, with_score
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.inputs import Inputs
from planner.strategies.assignment.module_items import require_token_limit
from planner.strategies.one_module.simulated_layouts import layout_alternative
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.strategies.static.tried_layouts import TriedLayouts
from planner.units import percent

LEAST_GAIN = 0.001  # share of the step; of less nothing is told
COMPARED = 4096  # layouts that the closed form compares with a change: the quickest without it


class NumericChange(NamedTuple):
    """A field of a layout, and a value of it that changes numerics."""

    name: str  # on screens
    field: Literal["dtype", "gradients"]
    value: str
    has: Callable[[Knobs], bool]  # whether a framework can be told it
    priced: Callable[[Inputs, TriedLayouts], bool]  # whether prices know it


def prices_fp8(inputs: Inputs, chosen: TriedLayouts) -> bool:
    """Whether products in fp8 have a price on the same grounds as those in bf16: the device's peak, and its kernels
    timed where those of bf16 were. Fits of a measured module say nothing of them.
    """
    timed = inputs.rates.get(inputs.cluster.ranks[0].kind)
    known = timed is None or "bf16" not in timed.gemm or "fp8" in timed.gemm
    return known and "fp8" in inputs.device.tflops and not (chosen.plan and chosen.plan.uses.prices.modules)


CHANGES = (
    NumericChange("fp8", "dtype", "fp8", lambda knobs: "fp8" in knobs.dtypes, prices_fp8),
    NumericChange("bf16 gradients", "gradients", "bf16", lambda knobs: "bf16" in knobs.gradients, lambda *_: True),
)


def numeric_alternatives(
    inputs: Inputs, problem: LayoutProblem, chosen: TriedLayouts, screened: ScreenedLayouts
) -> Iterator[Alternative]:
    """Yield a layout with each change that the job leaves open, where it is quicker than the chosen one."""
    fixed = problem.trained.fixed
    for change in CHANGES:
        if getattr(fixed, change.field) is None and change.has(problem.knobs) and change.priced(inputs, chosen):
            trained = replace(problem.trained, fixed=with_fields(fixed, **{change.field: change.value}))
            changed = replace(problem, trained=trained)
            layout = quickest(changed, screened, problem)
            seconds = simulated_seconds(inputs, changed, layout, chosen.seconds) if layout else np.inf
            if layout and np.isinf(seconds):  # the closed form was wrong about it: the chosen one may gain as well
                layout = with_fields(chosen.layout, **{change.field: change.value})
                seconds = simulated_seconds(inputs, changed, layout, chosen.seconds, known=False)
            gain = 1.0 - seconds / chosen.seconds
            if layout and gain >= LEAST_GAIN:
                needed = f"say layout.{change.field} {change.value}"
                because = f"{change.name}: {percent(gain)} quicker; changes numerics: {needed}"
                yield layout_alternative(inputs.module, layout, round_digits(seconds), because)


def quickest(changed: LayoutProblem, screened: ScreenedLayouts, problem: LayoutProblem) -> Layout | None:
    """The layout that fits and is quickest by the closed form with a change; None where none gains by it."""
    order = np.argsort(screened.seconds, kind="stable")
    order = order[screened.fits(problem)[order]]
    again = screen(changed, {name: column[order[:COMPARED]] for name, column in screened.layouts.items()})
    seconds = np.where(again.fits(changed), again.seconds, np.inf)
    best = int(np.argmin(seconds))
    return layout_at(changed.trained, again.layouts, best) if seconds[best] < screened.seconds[order[0]] else None


def simulated_seconds(
    inputs: Inputs, problem: LayoutProblem, layout: Layout, usual: float, known: bool = True
) -> float:
    """Simulated seconds of a layout's step; infinite where it gains too little over the usual seconds, does not fit, or
    has no gradients to send. `known`: whether it fits by the closed form, and can be launched.
    """
    if layout.gradients != "float32" and not reduces_gradients(layout, problem.trained.module):
        return np.inf
    plan = draft_of_layouts(inputs, {inputs.module: layout})
    seconds = step_seconds(plan)
    if seconds > usual * (1.0 - LEAST_GAIN):
        return np.inf
    try:
        require_token_limit(plan)
        if not known:
            with_score(plan, "")
            if error := unlaunchable_error(plan):
                raise error
        elif problem.trained.fixed.offload:  # that the job fixes may no longer hide behind compute that is quicker
            score(plan)
    except (Infeasible, InputError):
        return np.inf
    return seconds
