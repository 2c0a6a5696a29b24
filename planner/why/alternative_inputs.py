"""The job that gives an alternative of a plan: what its entry in the plan file says goes back in."""

from dataclasses import replace

from planner.plan.descriptions import placed_layout
from planner.plan.plan_file import Alternative, Plan
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies import STRATEGIES, Candidate, candidate_inputs, decides_layouts
from planner.strategies.static import fixing


def alternative_inputs(inputs: Inputs, plan: Plan, tried: Alternative) -> Inputs:
    """The job of a plan, with what an alternative to it says: layouts, or what its strategy was given."""
    strategy = tried.strategy if tried.strategy in STRATEGIES else plan.made.strategy  # a baseline is no strategy
    own = replace(inputs, job=with_fields(inputs.job, strategy=strategy))
    if not decides_layouts(strategy):
        candidate = Candidate(strategy, tried.zero, tried.sync or plan.steps[0].sync, tried.recompute)
        return candidate_inputs(own, candidate)
    layouts = {name: placed_layout(layout, plan.size) for name, layout in plan.layouts.items()} | tried.layouts
    if len(layouts) > 1:
        return fixing(own, layouts)
    (layout,) = layouts.values()
    return replace(own, job=with_fields(own.job, layout=with_decided(own.job.layout, layout)))


def with_decided(layout: Parallelism, decided: Parallelism) -> Parallelism:
    """A layout with the fields that another one decides."""
    return with_fields(layout, **decided_fields(decided))
