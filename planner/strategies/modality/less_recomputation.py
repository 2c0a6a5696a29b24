"""As little recomputation as fits: modules get a few shares of a rank's memory, and leave some of it unused.

Of the best joint layouts each module in turn, that of the samples first, recomputes as few layers as fit beside the
others, and offloads all that hides then, found by bisection: with fewer of them it holds more. That of the samples is
tried again beside encoders that recompute more: their layers may be cheaper to recompute than its own.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from math import ceil

from planner.layouts import recompute_ranges
from planner.plan.plan_file import Layout
from planner.scoring import TriedPlan
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Recompute
from planner.strategies.modality.joint_changes import Change, changed
from planner.strategies.modality.joint_search import JointSearch

MORE: tuple[Change, ...] = ({"recompute": "selective"}, {"recompute": "full"})  # of encoders


def recompute_less(done: JointSearch) -> None:
    """Simulate the best joint layouts with fewer and fewer layers recomputed, as long as they fit."""
    if not done.best or "ranges" not in done.inputs.software.knobs.recompute:
        return
    llm, encoders = done.inputs.module, [name for name in done.best.layouts if name != done.inputs.module]
    for name in (llm, *encoders):
        lighten(done, name, {})
    for name, change in product(encoders, MORE):
        layout = done.best.layouts[name]
        more = changed(done.inputs, name, layout, change)
        if more != layout:
            lighten(done, llm, {name: more})


def lighten(done: JointSearch, name: str, others: Mapping[str, Layout]) -> None:
    """Simulate the best joint layouts, some `others` in place of theirs, with fewer and fewer layers of a module
    recomputed. What is estimated to be slower counts as if it fitted.
    """
    start = done.best
    assert start, "a search that found something loses nothing"

    def is_too_large(lighter: Layout) -> bool:
        layouts = {**start.layouts, **others, name: all_hidden(done, name, lighter)}
        found = done.change(start, layouts, start.estimate)
        return not (found.plan or found.left_out)

    bisect_left([*lighter_layouts(done.inputs, name, start.layouts[name])], True, key=is_too_large)


def all_hidden(done: JointSearch, name: str, layout: Layout) -> Layout:
    """A layout of a module with all offloaded that hides, if it offloads: the more, the more layers recompute."""
    assert done.best and done.best.plan, "a search that found something loses nothing"
    if not layout.offload:
        return layout
    plan = with_fields(done.best.plan, layouts={**done.best.plan.layouts, name: layout})
    return changed(done.inputs, name, layout, {"offload": TriedPlan(plan, done.trials.prices).hidden_offload(name)})


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
