"""What a step would gain: solved with more memory, more ranks, a faster network or other recompute; of several modules
with a faster network or module, encoders elsewhere, and other data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import nearest_to, score
from planner.specs.base import UNSET, Spec, UnsetType
from planner.specs.inputs import Inputs
from planner.specs.parallelism import RecomputeName
from planner.strategies import decides_layouts
from planner.why.apply_changes import apply_implied
from planner.why.change_setters import change_layout, measured_with
from planner.why.kept_decisions import data_gains, kept_gains
from planner.why.placements import PlacementGain, pack_gains, placement_gains, problem_placed_again
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resize_cluster import with_bandwidth, with_memory, with_ranks
from planner.why.resolved import Infeasibility, Sensitivity, SolveAgain, Solved, gain_of, solved_again
from planner.why.step_facts import Facts, step_facts


class WhyPlan(Spec, omit_defaults=False, kw_only=True):
    """The answer for a step. What is unset is not asked of plans with as many modules."""

    plan: str
    step: int
    facts: Facts
    again: float  # the step when its unchanged problem is solved again; of several modules, its items placed again
    kept: str | UnsetType = UNSET  # of one module: why the decisions stay in what follows, as no strategy can make them
    unplaced: str | UnsetType = UNSET  # of several: why placements are not priced; empty, as `kept`: that is not so
    sensitivities: tuple[Sensitivity, ...]
    placements: tuple[PlacementGain, ...] | UnsetType = UNSET  # encoders elsewhere
    data: tuple[Sensitivity, ...] | UnsetType = UNSET  # with other data: priced only
    nearest: str  # the published run nearest to the plan, and how far it is; empty: its work was timed itself


def why_plan(plan: Plan, number: int, resolve: SolveAgain) -> WhyPlan:
    """The breakdown of one step, and what would shorten it."""
    step = single_step(plan, number)
    facts = step_facts(step, score(step))
    gains = gains_of_several(step, facts.value) if len(step.layouts) > 1 else gains_of_one(step, facts.value, resolve)
    return WhyPlan(plan=plan.name, step=number, facts=facts, nearest=nearest_to(plan), **gains)


def gains_of_several(step: Plan, value: float) -> dict[str, Any]:
    """The fields of the answer for several modules: placements and packs are planned again, in all else the decisions
    stay. `value`: seconds of the step.
    """
    problem, unplaced = problem_placed_again(step)
    again = problem[1].seconds if problem else value
    return {
        "again": again,
        "unplaced": unplaced,
        "sensitivities": tuple(kept_gains(step, value)),
        "placements": tuple(placement_gains(problem[0], step, again)) if problem else (),
        "data": (*data_gains(step, value), *(pack_gains(problem[0], step, again) if problem else ())),
    }


def gains_of_one(step: Plan, value: float, resolve: SolveAgain) -> dict[str, Any]:
    """The fields of the answer for one module: solved again, or its decisions kept where no strategy makes them."""
    problem, kept = solvable_problem(step)
    if problem is None:
        return {"again": value, "kept": kept, "sensitivities": tuple(kept_gains(step, value))}
    again = solved_again(problem, resolve)
    seconds = again.seconds if isinstance(again, Solved) else value
    gains = (
        gain_with(machine, solved_again(machine.inputs, resolve), min(value, seconds)) for machine in variants(problem)
    )
    return {"again": seconds, "kept": "", "sensitivities": tuple(gains)}


def solvable_problem(step: Plan) -> tuple[Inputs | None, str]:
    """The problem of a plan of one step; or None, and why no strategy can solve it."""
    try:
        problem, _, unable = apply_implied(plan_inputs(step), ())
    except InputError as error:
        return None, error.message
    return (None, unable) if unable else (problem, "")


@dataclass(frozen=True, slots=True)
class Variant:
    """A better machine, or other recompute; `keeps_decisions`: the plan's own stay feasible, and are no slower."""

    what: str
    inputs: Inputs
    keeps_decisions: bool


def variants(inputs: Inputs) -> Iterator[Variant]:
    """Machines with one more of something; then the same machine with other recompute."""
    more, what = with_memory(inputs, 1.0)
    yield Variant(what, more, True)
    last = {(entry.kind, entry.per_node): at for at, entry in enumerate(inputs.cluster.ranks)}
    for at in last.values():  # which nodes of a kind get one more does not matter
        entry = inputs.cluster.ranks[at]
        wider = with_ranks(inputs, at, entry.count + entry.per_node)
        yield Variant(f"one more node ({entry.per_node} × {entry.kind})", wider, False)
    faster = with_bandwidth(inputs, 2.0)
    if faster:
        yield Variant("twice the bandwidth between nodes", faster, True)
    yield from recompute_variants(inputs)


def recompute_variants(inputs: Inputs) -> Iterator[Variant]:
    """The plan's machine with each other measured recompute; none for a search of layouts, which tries them all."""
    if decides_layouts(inputs.job.strategy):
        return
    for how in get_args(RecomputeName):
        if how != (inputs.job.layout.recompute or "none") and measured_with(inputs, how):
            yield Variant(f"recompute: {how}", change_layout(inputs, recompute=how), False)


def gain_with(machine: Variant, changed: Solved | Infeasibility, before: float) -> Sensitivity:
    """Compare with the plan's seconds; where the search found a worse plan, its own decisions stay."""
    if isinstance(changed, Solved) and machine.keeps_decisions:
        return gain_of(machine.what, min(before, changed.seconds), before)
    return gain_of(machine.what, changed, before)
