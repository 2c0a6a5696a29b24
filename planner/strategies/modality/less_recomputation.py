"""As little recomputation as fits: modules get a few shares of a rank's memory, and leave some of it unused.

Of the best joint layouts each module in turn, that of the samples first, recomputes as few layers as fit beside the
others, found by bisection: with fewer of them it holds more. That of the samples is tried again with all offloaded that
hides, and beside encoders that recompute more: their layers may be cheaper to recompute than its own.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise, product
from math import ceil

from planner.errors import Infeasible, InputError
from planner.layouts import recompute_ranges
from planner.plan.plan_file import Layout
from planner.scoring import TriedPlan
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Recompute
from planner.strategies.modality.joint_changes import Change, changed
from planner.strategies.modality.joint_search import JointSearch

MORE: tuple[Change, ...] = ({"recompute": "selective"}, {"recompute": "full"})  # of encoders


def recompute_less(done: JointSearch) -> None:
    """Simulate the best joint layouts with fewer and fewer layers recomputed, as long as they fit."""
    if not done.best or "ranges" not in done.inputs.software.knobs.recompute:
        return
    llm, modules = done.inputs.module, done.inputs.model.modules
    lighten(done, llm, llm, all_that_hides(done))
    for name in sorted(modules, key=lambda each: each != llm):
        lighten(done, name, name, {})
    for name, change in product([each for each in modules if each != llm], MORE):
        lighten(done, llm, name, change)


def lighten(done: JointSearch, name: str, other: str, change: Change) -> None:
    """Simulate the best joint layouts with fewer and fewer layers of a module recomputed, and a change of the same or
    another. What is estimated to be slower counts as if it fitted.
    """
    start = done.best
    assert start, "a search that found something loses nothing"
    layouts = {**start.layouts, other: changed(done.inputs, other, start.layouts[other], change)}
    if change and layouts == start.layouts:
        return

    def is_too_large(lighter: Layout) -> bool:
        found = done.simulate({**layouts, name: lighter}, done.kind_of_change(start), start.estimate)
        return not (found.plan or found.left_out)

    bisect_left([*lighter_layouts(done.inputs, name, layouts[name])], True, key=is_too_large)


def all_that_hides(done: JointSearch) -> Change:
    """As much offloaded by the samples' module of the best joint layouts as hides, whichever layers recompute, if it
    offloads: what recomputes nothing sends most.
    """
    assert done.best, "a search that found something loses nothing"
    name, layouts = done.inputs.module, done.best.layouts
    if not layouts[name].offload:
        return {}
    bare = changed(done.inputs, name, layouts[name], {"recompute": "none"})
    try:
        tried = TriedPlan(done.trials.draft({**layouts, name: bare}).plan, done.trials.prices)
        return {"offload": max(layouts[name].offload, tried.hidden_offload(name))}
    except (Infeasible, InputError):
        return {}


def lighter_layouts(inputs: Inputs, name: str, layout: Layout) -> Iterator[Layout]:
    """The layout of a module with fewer and fewer layers on each pipeline rank that recompute most, to none."""
    layers = inputs.model.modules[name].layers
    for most, base in pairwise(lightest_last(layout, layers)):
        count = ceil(layout.recompute_counts(range(layers)).get(most, 0) / layout.pp)
        for fewer in reversed(range(count)):
            recompute = recompute_ranges(layout, layers, base, fewer, most)
            other = changed(inputs, name, layout, {"recompute": recompute})
            if other != layout:
                yield other
        layout = changed(inputs, name, layout, {"recompute": base})


def lightest_last(layout: Layout, layers: int) -> list[Recompute]:
    """What layers recompute, all of it first and nothing last; none where they differ in more than that."""
    told = {*layout.recompute_counts(range(layers))}
    if len(told) > 2 or len(told - {"none", "full"}) > 1:
        return []
    return sorted(told | {"none"}, key=lambda how: (how == "none") - (how == "full"))
