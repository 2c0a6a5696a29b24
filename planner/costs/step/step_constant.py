"""With which modules' updates the framework's constant of a step is counted: each rank has it once."""

from collections.abc import Mapping

from planner.plan.gradient_flow import GradientFlow
from planner.plan.plan_file import Layout
from planner.specs.layers import Module


def modules_with_constant(
    models: Mapping[str, Module], layouts: Mapping[str, Layout], flows: Mapping[str, GradientFlow]
) -> set[str]:
    """The modules that end in a loss, then those on most ranks, as far as they have ranks that none before them has,
    and anything to update.
    """
    found, covered = set[str](), set[int]()
    for name in sorted(layouts, key=lambda each: (models[each].feature_width > 0, -len(layouts[each].ranks))):
        if (name not in flows or flows[name].trains()) and not covered.issuperset(layouts[name].ranks):
            found.add(name)
            covered.update(layouts[name].ranks)
    return found
