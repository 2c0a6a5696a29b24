"""Why a step of several modules takes as long as it does: where its time goes and what binds, what a faster machine or
module would save, what encoders elsewhere would, and what other data would cost.
"""

from collections.abc import Iterator
from functools import partial

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import nearest_to, score, step_seconds
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.strategies.static import unsupported_together
from planner.why.data_changes import other_data
from planner.why.joint_changes import changed_problem
from planner.why.joint_facts import JointFacts, joint_facts
from planner.why.joint_why_not import Solved, solved
from planner.why.kept_decisions import kept_gains
from planner.why.kept_layouts import kept_plan, placed_again
from planner.why.placement_changes import other_placements
from planner.why.plan_problem import plan_inputs
from planner.why.resolved import Infeasibility
from planner.why.sensitivity import Sensitivity, sensitivity_of


class PlacementGain(Spec, omit_defaults=False):
    """An encoder elsewhere: `changes` are what `why-not` takes."""

    changes: tuple[str, ...]
    gain: Sensitivity


class JointWhyPlan(Spec, omit_defaults=False):
    """The answer for a step of several modules."""

    plan: str
    step: int
    facts: JointFacts
    again: float  # the step with the plan's own layouts, its items placed again: what placements compare with
    unplaced: str  # why its items cannot be placed again, so that placements are not priced; empty: they can
    sensitivities: tuple[
        Sensitivity, ...
    ]  # a faster network, and each module computing faster, with all decisions kept
    placements: tuple[PlacementGain, ...]
    data: tuple[Sensitivity, ...]  # with other data: priced only
    nearest: str  # the published run nearest to the plan's largest module; empty: its work was timed itself


def joint_why_plan(plan: Plan, number: int, step: Plan) -> JointWhyPlan:
    """The answer for a step that is a plan of its own."""
    own = joint_facts(step, score(step))
    problem, unplaced = problem_placed_again(step)
    again = problem[1].seconds if problem else own.value
    return JointWhyPlan(
        plan=plan.name,
        step=number,
        facts=own,
        again=again,
        unplaced=unplaced,
        sensitivities=tuple(kept_gains(step, own.value)),
        placements=tuple(placement_gains(problem[0], step, again)) if problem else (),
        data=(*data_gains(step, own.value), *(pack_gains(problem[0], step, again) if problem else ())),
        nearest=nearest_to(plan),
    )


def problem_placed_again(step: Plan) -> tuple[tuple[Inputs, Solved] | None, str]:
    """The problem of a step, and its own layouts as a plan; or None, and why there is none."""
    try:
        inputs = plan_inputs(step)
        unable = unsupported_together(inputs)
    except InputError as error:
        return None, error.message
    if unable:
        return None, unable.partition(" | ")[0]
    found = solved(partial(placed_again, inputs, step, step.layouts))
    return (None, found.message) if isinstance(found, Infeasibility) else ((inputs, found), "")


def placement_gains(inputs: Inputs, step: Plan, before: float) -> Iterator[PlacementGain]:
    """Encoders elsewhere, all else as it was."""
    for what, words in other_placements(inputs, step.layouts):
        change = changed_problem(inputs, words)
        found = solved(partial(kept_plan, change, step))
        yield PlacementGain(changes=words, gain=gain_of(what, found, before))


def data_gains(step: Plan, before: float) -> Iterator[Sensitivity]:
    """Other data, with all decisions kept."""
    for what, other in other_data(step):
        yield sensitivity_of(what, before, step_seconds(other))


def pack_gains(inputs: Inputs, step: Plan, before: float) -> Iterator[Sensitivity]:
    """Other budgets of packs, where samples are packed."""
    for name, most in inputs.job.limits.inputs_per_rank.items():
        change = changed_problem(inputs, (f"{name}.inputs_per_rank={2 * most}",))
        found = solved(partial(kept_plan, change, step))
        yield gain_of(f"{name}: packs of twice the size ({name}.inputs_per_rank={2 * most})", found, before)


def gain_of(what: str, found: Solved | Infeasibility, before: float) -> Sensitivity:
    """What a plan saves against a step that took so long; or why there is none."""
    if isinstance(found, Infeasibility):
        return Sensitivity(what=what, seconds=None, saved=None, share=None, because=found.message)
    return sensitivity_of(what, before, found.seconds)
