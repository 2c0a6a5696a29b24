"""What a step would gain from more memory, more ranks, a faster network or other recompute: solves it with each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Recompute
from planner.strategies import is_static
from planner.why.apply_changes import apply_implied
from planner.why.change_setters import change_layout, measured_with
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resize_cluster import with_bandwidth, with_memory, with_ranks
from planner.why.resolved import Infeasibility, SolveAgain, solve_facts
from planner.why.step_facts import StepFacts, step_facts


class Sensitivity(Spec, omit_defaults=False):
    """One changed resource, and the step with it."""

    what: str
    seconds: float | None  # of the step; None: infeasible
    saved: float | None  # negative: it takes longer
    share: float | None  # of the step
    because: str  # binding constraint where it is infeasible


class WhyPlan(Spec, omit_defaults=False):
    plan: str
    step: int
    facts: StepFacts
    again: float  # the step when its unchanged problem is solved again
    sensitivities: tuple[Sensitivity, ...]


def why_plan(plan: Plan, number: int, resolve: SolveAgain) -> WhyPlan:
    """The breakdown of one step, and what would shorten it. Raises InputError where no strategy can re-solve it."""
    step = single_step(plan, number)
    unchanged, _, unable = apply_implied(plan_inputs(step), ())
    if unable:
        fix = "ask about one of its items or groups"
        raise InputError(f"no strategy can solve the plan's problem again: {unable}", where=plan.name, fix=fix)
    own, again = step_facts(step, score(step)), solve_facts(unchanged, resolve)
    base = min(own.value, again.value) if isinstance(again, StepFacts) else own.value
    found = [sensitivity_of(machine, solve_facts(machine.inputs, resolve), base) for machine in variants(unchanged)]
    return WhyPlan(
        plan=plan.name,
        step=number,
        facts=own,
        again=again.value if isinstance(again, StepFacts) else own.value,
        sensitivities=tuple(found),
    )


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
    if is_static(inputs.job.strategy):
        return
    for how in get_args(Recompute):
        if how != (inputs.job.layout.recompute or "none") and measured_with(inputs, how):
            yield Variant(f"recompute: {how}", change_layout(inputs, recompute=how), False)


def sensitivity_of(machine: Variant, found: StepFacts | Infeasibility, base: float) -> Sensitivity:
    """Compare with `base`, the plan's seconds; where the search found a worse plan, its own decisions stay."""
    if isinstance(found, Infeasibility):
        return Sensitivity(what=machine.what, seconds=None, saved=None, share=None, because=found.message)
    seconds = min(base, found.value) if machine.keeps_decisions else found.value
    saved = base - seconds
    return Sensitivity(what=machine.what, seconds=seconds, saved=saved, share=saved / base if base else 0.0, because="")
