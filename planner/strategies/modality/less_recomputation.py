"""As little recomputation as fits: modules get a few shares of a rank's memory, and leave some of it unused.

Of the best joint layouts each module in turn, that of the samples first, recomputes as few layers as fit beside the
others, found by bisection: with fewer of them it holds more.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from math import ceil

from planner.layouts import recompute_ranges
from planner.plan.plan_file import Layout
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Recompute
from planner.strategies.modality.joint_changes import changed
from planner.strategies.modality.joint_search import JointSearch


def recompute_less(done: JointSearch) -> None:
    """Simulate the best joint layouts with fewer and fewer layers recomputed, as long as they fit."""
    for name in sorted(done.inputs.model.modules, key=lambda each: each != done.inputs.module):
        start = done.best
        if not start or "ranges" not in done.inputs.software.knobs.recompute:
            return
        kind, able = done.kind_of_change(start), [*lighter_layouts(done.inputs, name, start.layouts[name])]
        bisect_left(able, True, key=lambda each: not done.simulate({**start.layouts, name: each}, kind).plan)


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
