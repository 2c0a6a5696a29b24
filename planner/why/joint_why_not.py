"""Explains the cost of a change of a plan of several modules. The other modules keep their layouts; where a strategy
decided these, they are also solved again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from planner.errors import Infeasible, InputError, Unsupported
from planner.plan.plan_file import Layout, Plan
from planner.scoring import Score, require_memory, score
from planner.specs.base import Spec, with_fields
from planner.strategies import STRATEGIES
from planner.strategies.static import changed_layouts, fitting_change, unsupported_together
from planner.why.joint_changes import JointChange, changed_problem, followed
from planner.why.joint_facts import JointFacts, joint_facts
from planner.why.kept_layouts import decided_again, kept_plan, placed_again
from planner.why.plan_difference import PartDifference, change_text, listed_differences
from planner.why.plan_problem import plan_inputs
from planner.why.resolved import Infeasibility, SolveAgain


class JointWhyNot(Spec, omit_defaults=False):
    """The answer: what else follows, and both steps; or what binds."""

    plan: str
    step: int
    changes: tuple[str, ...]
    follows: tuple[str, ...]  # what else of the layouts is another in `after`
    before: JointFacts
    again: float | None  # the step with the plan's own layouts, its items placed again; None: they cannot be
    after: JointFacts | None
    kept: bool  # whether `after` keeps the layouts of all modules that were not asked about
    kept_seconds: float | None  # of the step where they are kept; None: that is not possible
    kept_because: str  # what binds then
    seconds: float | None  # that the change adds to the step; negative: saves
    share: float | None  # of the step
    because: tuple[PartDifference, ...]
    infeasible: Infeasibility | None


def joint_why_not(plan: Plan, number: int, step: Plan, words: tuple[str, ...], resolve: SolveAgain) -> JointWhyNot:
    """The cost of `words`, of a step that is a plan of its own. Raises InputError for words that are no changes."""
    problem = plan_inputs(step)
    unable = unsupported_together(problem)
    if unable:
        message, _, fix = unable.partition(" | ")
        raise InputError(message, where="the plan", fix=fix)
    change = changed_problem(problem, words)
    before = joint_facts(step, score(step))
    again = solved(lambda: placed_again(problem, step, step.layouts))
    alone = solved(lambda: kept_plan(change, step))
    found = {True: alone}
    if step.made.strategy in STRATEGIES:
        found[False] = solved(lambda: decided_again(change, step, resolve))
    plans = {kept: each for kept, each in found.items() if isinstance(each, Solved)}
    kept = min(plans, key=lambda each: (plans[each].seconds, not each), default=True)
    after = joint_facts(*plans[kept]) if kept in plans else None
    refusal = found.get(False, alone)
    return JointWhyNot(
        plan=plan.name,
        step=number,
        changes=words,
        follows=followed(change, step.layouts, plans[kept].plan.layouts) if after else (),
        before=before,
        again=again.seconds if isinstance(again, Solved) else None,
        after=after,
        kept=kept,
        kept_seconds=plans[True].seconds if True in plans else None,
        kept_because=alone.message if isinstance(alone, Infeasibility) else "",
        seconds=after.value - before.value if after else None,
        share=after.value / before.value - 1 if after and before.value else None,
        because=joint_differences(before, after) if after else (),
        infeasible=with_nearest(refusal, alone, change, step.layouts)
        if isinstance(refusal, Infeasibility) and not after
        else None,
    )


class Solved(NamedTuple):
    """A plan that fits, and its score."""

    plan: Plan
    found: Score

    @property
    def seconds(self) -> float:
        """Of its step."""
        return self.found.step_seconds


def solved(solve: Callable[[], Plan]) -> Solved | Infeasibility:
    """A plan that fits, or what binds."""
    try:
        plan = solve()
        found = score(plan)
        require_memory(plan, found)
    except (InputError, Infeasible) as error:
        illegal = isinstance(error, InputError) and not isinstance(error, Unsupported)
        return Infeasibility(message=error.message, where=error.where, fix=error.fix, illegal=illegal)
    return Solved(plan, found)


def with_nearest(
    binding: Infeasibility, kept: Solved | Infeasibility, change: JointChange, layouts: Mapping[str, Layout]
) -> Infeasibility:
    """What binds, with the nearest further change that fits as its fix where memory binds with the others `kept`."""
    if isinstance(kept, Solved) or kept.where != "memory":
        return binding
    changed = changed_layouts(change.inputs, change.asked, layouts)
    nearest = fitting_change(change.inputs, changed, asked=change.asked)
    return with_fields(binding, fix=" and ".join(nearest.differences) + " as well" if nearest else binding.fix)


def joint_differences(before: JointFacts, after: JointFacts) -> tuple[PartDifference, ...]:
    """The parts of the time that differ, the largest difference first."""
    names = dict.fromkeys((*before.parts, *after.parts))
    each = [(name, before.parts.get(name, 0.0), after.parts.get(name, 0.0)) for name in names]
    clauses = [
        PartDifference(part=name, before=old, after=new, text=f"{name} {change_text(old, new)}")
        for name, old, new in each
    ]
    return listed_differences(clauses, before.value)
