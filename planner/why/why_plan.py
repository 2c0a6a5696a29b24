"""What a step would gain from more memory, more ranks, a faster network or other recompute: solves it with each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import nearest_to, score
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.specs.parallelism import RecomputeName
from planner.strategies import decides_layouts
from planner.why.apply_changes import apply_implied
from planner.why.change_setters import change_layout, measured_with
from planner.why.kept_decisions import kept_gains
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resize_cluster import with_bandwidth, with_memory, with_ranks
from planner.why.resolved import Infeasibility, SolveAgain, solve_facts
from planner.why.sensitivity import Sensitivity, sensitivity_of
from planner.why.step_facts import StepFacts, step_facts


class WhyPlan(Spec, omit_defaults=False):
    plan: str
    step: int
    facts: StepFacts
    again: float  # the step when its unchanged problem is solved again
    kept: str  # why the decisions stay in what follows: no strategy can make them again; empty: they do not stay
    sensitivities: tuple[Sensitivity, ...]
    nearest: str  # the published run nearest to the plan, and how far it is; empty: its work was timed itself


def why_plan(plan: Plan, number: int, resolve: SolveAgain) -> WhyPlan:
    """The breakdown of one step, and what would shorten it: solved again, or with its decisions kept where no strategy
    makes them.
    """
    step = single_step(plan, number)
    own = step_facts(step, score(step))
    problem, kept = solvable_problem(step)
    if problem is None:
        gains = tuple(kept_gains(step, own.value))
        return WhyPlan(
            plan=plan.name,
            step=number,
            facts=own,
            again=own.value,
            kept=kept,
            sensitivities=gains,
            nearest=nearest_to(plan),
        )
    again = solve_facts(problem, resolve)
    base = min(own.value, again.value) if isinstance(again, StepFacts) else own.value
    return WhyPlan(
        plan=plan.name,
        step=number,
        facts=own,
        again=again.value if isinstance(again, StepFacts) else own.value,
        kept="",
        sensitivities=tuple(
            gain_with(machine, solve_facts(machine.inputs, resolve), base) for machine in variants(problem)
        ),
        nearest=nearest_to(plan),
    )


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
    """The same machine with each other measured recompute; none for a search of layouts, which tries them all."""
    if decides_layouts(inputs.job.strategy):
        return
    for how in get_args(RecomputeName):
        if how != (inputs.job.layout.recompute or "none") and measured_with(inputs, how):
            yield Variant(f"recompute: {how}", change_layout(inputs, recompute=how), False)


def gain_with(machine: Variant, found: StepFacts | Infeasibility, before: float) -> Sensitivity:
    """Compare with the plan's seconds; where the search found a worse plan, its own decisions stay."""
    if isinstance(found, Infeasibility):
        return Sensitivity(what=machine.what, seconds=None, saved=None, share=None, because=found.message)
    return sensitivity_of(machine.what, before, min(before, found.value) if machine.keeps_decisions else found.value)
