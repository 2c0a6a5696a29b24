"""Explains the cost of a change: solves the plan's own problem again with it, and compares both steps."""

from planner.plan.model import Plan
from planner.specs.base import Spec, changed
from planner.verify.score import score
from planner.why.change import with_changes, with_what_follows
from planner.why.explain import Clause, explain
from planner.why.facts import Facts, facts
from planner.why.frees import nearest
from planner.why.problem import inputs_of, of_step
from planner.why.resolve import Binding, Resolve, solved


class WhyNot(Spec, omit_defaults=False):
    """The answer: the further changes it requires and both steps; or the binding constraint."""

    plan: str
    step: int
    changes: tuple[str, ...]
    follows: tuple[str, ...]  # further changes that they require
    before: Facts
    again: float | None  # the step when its unchanged problem is solved again; None: no strategy can
    after: Facts | None
    seconds: float | None  # that the change adds to the step; negative: saves
    share: float | None  # of the step
    because: tuple[Clause, ...]
    infeasible: Binding | None


def why_not(plan: Plan, number: int, words: tuple[str, ...], resolve: Resolve) -> WhyNot:
    """Solve a step's problem again with `words` changed, and compare. Raises InputError."""
    step = of_step(plan, number)
    inputs, follows, unable = with_what_follows(with_changes(inputs_of(step), words), words)  # input errors first
    before = facts(step, score(step))
    problem, _, undecidable = with_what_follows(inputs_of(step), ())
    again = None if undecidable else solved(problem, resolve)
    after = Binding(message=unable, where="strategy (what binds)", fix="") if unable else solved(inputs, resolve)
    found = after if isinstance(after, Facts) else None
    return WhyNot(
        plan=plan.name,
        step=number,
        changes=words,
        follows=follows,
        before=before,
        again=again.value if isinstance(again, Facts) else None,
        after=found,
        seconds=found.value - before.value if found else None,
        share=found.value / before.value - 1 if found and before.value else None,
        because=explain(before, found) if found else (),
        infeasible=None if isinstance(after, Facts) else freed(after, nearest(problem, words, resolve)),
    )


def freed(binding: Binding, feasible: str) -> Binding:
    """Add the nearest feasible change as a fix. For fewer ranks it replaces the solver's, which counts states only."""
    if feasible.startswith(("ranks", "nodes")):
        return changed(binding, fix=feasible)
    return changed(binding, fix=", or ".join(filter(None, (feasible, binding.fix))))
