"""The towers of a job with several tasks: their layouts, and what they take on how many replicas."""

from collections.abc import Mapping
from typing import Any

from planner.costs import TowerSeconds
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import decided_fields
from planner.strategies.assignment.module_items import item_line
from planner.strategies.static.layouts_plan import pricing_for


def towers_of(inputs: Inputs, layouts: Mapping[str, Layout]) -> dict[str, TowerSeconds]:
    """The towers of a job, whose replicas have these layouts."""
    pricing, batch = pricing_for(inputs, dict(layouts)), inputs.batches[0]
    return {
        name: TowerSeconds(
            name, batch.items if name == inputs.module else batch.streams[name], item_line(pricing, name, layout)
        )
        for name, layout in layouts.items()
    }


def layouts_on_all_ranks(inputs: Inputs, tp: int, recompute: str) -> dict[str, Layout]:
    """Each tower data-parallel over all ranks, in replicas of `tp`, with what the job fixes of it. Forwards of a step
    come before its backwards, which wait for losses. Raises InputError.
    """
    size, found = inputs.cluster.size, dict[str, Layout]()
    for name in inputs.model.modules:
        usual: dict[str, Any] = {"tp": tp, "zero": 1, "recompute": recompute, "schedule": "gpipe"}
        fields = usual | decided_fields(inputs.fixed_of(name))
        found[name] = with_fields(Layout(ranks=Ranks(range(size))), **{**fields, "dp": size // fields["tp"]})
    return found
