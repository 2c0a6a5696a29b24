"""Explains the cost of a change: solves the plan's own problem again with it, and compares both steps."""

from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import Spec, with_fields
from planner.why.apply_changes import apply_changes, apply_implied
from planner.why.fixed_stages import keeping_layout, priced_as_fixed
from planner.why.joint_why_not import JointWhyNot, joint_why_not
from planner.why.nearest_feasible import nearest_feasible
from planner.why.plan_difference import PartDifference, differing_parts
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resolved import Infeasibility, SolveAgain, solve_facts
from planner.why.step_facts import StepFacts, step_facts


class WhyNot(Spec, omit_defaults=False):
    """The answer: the further changes it requires and both steps; or the binding constraint."""

    plan: str
    step: int
    changes: tuple[str, ...]
    follows: tuple[str, ...]  # further changes that they require
    before: StepFacts
    again: float | None  # the step when its unchanged problem is solved again; None: no strategy can
    after: StepFacts | None
    seconds: float | None  # that the change adds to the step; negative: saves
    share: float | None  # of the step
    because: tuple[PartDifference, ...]
    infeasible: Infeasibility | None


def why_not(plan: Plan, number: int, words: tuple[str, ...], resolve: SolveAgain) -> WhyNot | JointWhyNot:
    """Solve a step's problem again with `words` changed, and compare. Raises InputError."""
    step = single_step(plan, number)
    if len(step.layouts) > 1:
        return joint_why_not(plan, number, step, words, resolve)
    changed = apply_changes(plan_inputs(step), words)  # input errors first
    staged = changed.job.layout.stages is not None
    implied = (keeping_layout(changed, step, words), (), "") if staged else apply_implied(changed, words)
    inputs, follows, unable = implied
    before = step_facts(step, score(step))
    problem, _, undecidable = apply_implied(plan_inputs(step), ())
    again = None if undecidable else solve_facts(problem, resolve)
    after = (
        Infeasibility(message=unable, where="strategy (what binds)", fix="")
        if unable
        else solve_facts(inputs, priced_as_fixed if staged else resolve)
    )
    found = after if isinstance(after, StepFacts) else None
    return WhyNot(
        plan=plan.name,
        step=number,
        changes=words,
        follows=follows,
        before=before,
        again=again.value if isinstance(again, StepFacts) else None,
        after=found,
        seconds=found.value - before.value if found else None,
        share=found.value / before.value - 1 if found and before.value else None,
        because=differing_parts(before, found) if found else (),
        infeasible=None
        if isinstance(after, StepFacts)
        else with_feasible_fix(after, "" if staged else nearest_feasible(problem, words, resolve)),
    )


def with_feasible_fix(binding: Infeasibility, feasible: str) -> Infeasibility:
    """Add the nearest feasible change as a fix. For fewer ranks it replaces the solver's, which counts states only."""
    if feasible.startswith(("ranks", "nodes")):
        return with_fields(binding, fix=feasible)
    return with_fields(binding, fix=", or ".join(filter(None, (feasible, binding.fix))))
