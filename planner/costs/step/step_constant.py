"""With which modules' updates the framework's constant of a step is counted: each rank has it once."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from planner.plan.gradient_flow import GradientFlow
from planner.plan.plan_file import Layout
from planner.specs.layers import Module

Key = TypeVar("Key")


def modules_with_constant(
    models: Mapping[str, Module], layouts: Mapping[str, Layout], flows: Mapping[str, GradientFlow]
) -> set[str]:
    """The modules that end in a loss, then those on most ranks, as far as they have ranks that none before them has,
    and anything to update.
    """
    in_order = sorted(layouts, key=lambda each: (models[each].feature_width > 0, -len(layouts[each].ranks)))
    trained = (name for name in in_order if name not in flows or flows[name].trains())
    return first_to_cover((name, layouts[name].ranks) for name in trained)


def first_to_cover(held: Iterable[tuple[Key, Collection[int]]]) -> set[Key]:
    """Those, in their order, that hold something that none before them holds."""
    found, covered = set[Key](), set[int]()
    for key, own in held:
        if not covered.issuperset(own):
            found.add(key)
            covered.update(own)
    return found
