"""What a change of a plan's problem would cost, and why: its own problem solved again with it, both compared."""

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
    """The answer: what the change brings with it, and both steps; or what binds."""

    plan: str
    step: int
    changes: tuple[str, ...]
    follows: tuple[str, ...]  # what had to change with them
    before: Facts
    again: float | None  # the step when its unchanged problem is solved again; None: no strategy can
    after: Facts | None
    seconds: float | None  # that the change adds; negative: it saves them
    share: float | None  # of the step
    because: tuple[Clause, ...]
    infeasible: Binding | None


def why_not(plan: Plan, number: int, words: tuple[str, ...], resolve: Resolve) -> WhyNot:
    """Solve a step's problem again with `words` changed, and compare. Raises InputError."""
    step = of_step(plan, number)
    inputs, follows, unable = with_what_follows(with_changes(inputs_of(step), words), words)  # refused before all else
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


def freed(binding: Binding, instead: str) -> Binding:
    """With what was found to be possible instead. On fewer ranks, the solver's own proposal looks at states alone."""
    if instead.startswith(("ranks", "nodes")):
        return changed(binding, fix=instead)
    return changed(binding, fix=", or ".join(filter(None, (instead, binding.fix))))
