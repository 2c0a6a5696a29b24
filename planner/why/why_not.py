"""Explains the cost of a change: solves the plan's own problem again with it, and compares both steps.

Of several modules those that are not asked about keep their layouts; where a strategy decided these, they are also
solved again.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from planner.errors import InputError
from planner.plan.descriptions import fixable_layout
from planner.plan.plan_file import Layout, Plan
from planner.scoring import require_memory, score
from planner.specs.base import UNSET, Spec, UnsetType, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies import STRATEGIES
from planner.strategies.static import FieldChange, changed_layouts, fitting_change, predict_job, unsupported_together
from planner.why.apply_changes import AskedChange, apply_changes, apply_implied, apply_module_changes, followed
from planner.why.change_setters import ITEM, change_job
from planner.why.kept_layouts import decided_again, kept_plan, placed_again
from planner.why.plan_difference import PartDifference, differing_parts
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resolved import Infeasibility, SolveAgain, Solved, solved, solved_again
from planner.why.step_facts import Facts, step_facts

IMPLIED = frozenset({"pp", "vpp"})  # by how many stages there are
# Of the ranks that are left, of the chunks, and of the compute that hides copies to the host
FOLLOWING = frozenset({"dp", "schedule", "stages", "offload"})


class WhyNot(Spec, omit_defaults=False, kw_only=True):
    """The answer: the further changes it requires and both steps; or the binding constraint."""

    plan: str
    step: int
    changes: tuple[str, ...]
    follows: tuple[str, ...]  # further changes that they require; of several modules, what else differs in `after`
    before: Facts
    again: float | None  # the step when its unchanged problem is solved again; of several modules, with the plan's own
    # layouts and its items placed again; None: that is not possible
    after: Facts | None
    kept: bool | UnsetType = UNSET  # of several modules: whether `after` keeps all layouts that were not asked about
    kept_seconds: float | UnsetType | None = UNSET  # of the step where they are kept; None: that is not possible
    kept_because: str | UnsetType = UNSET  # what binds then
    seconds: float | None  # that the change adds to the step; negative: saves
    share: float | None  # of the step
    because: tuple[PartDifference, ...]
    infeasible: Infeasibility | None


@dataclass(frozen=True, slots=True)
class Trial:
    """What solving a changed problem gave, and its unchanged one."""

    outcome: Solved | Infeasibility
    follows: tuple[str, ...]
    again: Solved | Infeasibility | None  # the unchanged problem; None: no strategy can
    kept: dict[str, Any] = field(default_factory=dict)  # the fields of the answer that only several modules have


def why_not(plan: Plan, number: int, words: tuple[str, ...], resolve: SolveAgain) -> WhyNot:
    """Solve a step's problem again with `words` changed, and compare. Raises InputError."""
    step = single_step(plan, number)
    trial = (try_modules if len(step.layouts) > 1 else try_module)(step, words, resolve)
    before = step_facts(step, score(step))
    after = step_facts(*trial.outcome) if isinstance(trial.outcome, Solved) else None
    return WhyNot(
        plan=plan.name,
        step=number,
        changes=words,
        follows=trial.follows,
        before=before,
        again=trial.again.seconds if isinstance(trial.again, Solved) else None,
        after=after,
        seconds=after.value - before.value if after else None,
        share=after.value / before.value - 1 if after and before.value else None,
        because=differing_parts(before, after) if after else (),
        infeasible=trial.outcome if isinstance(trial.outcome, Infeasibility) else None,
        **trial.kept,
    )


# ------------------------------------------------------------------------------------------------------- one module


def try_module(step: Plan, words: tuple[str, ...], resolve: SolveAgain) -> Trial:
    """Solve the problem of one module with a change, and unchanged."""
    changed = apply_changes(plan_inputs(step), words)  # input errors first
    problem, _, undecidable = apply_implied(plan_inputs(step), ())
    again = None if undecidable else solved_again(problem, resolve)
    if changed.job.layout.stages is not None:
        return Trial(solved_again(keeping_layout(changed, step, words), priced_as_fixed), (), again)
    inputs, follows, unable = apply_implied(changed, words)
    refused = Infeasibility(message=unable, where="strategy (what binds)", fix="") if unable else None
    outcome = refused or solved_again(inputs, resolve)
    if isinstance(outcome, Infeasibility):
        outcome = with_feasible_fix(outcome, nearest_feasible(problem, words, resolve))
    return Trial(outcome, follows, again)


def keeping_layout(inputs: Inputs, step: Plan, words: tuple[str, ...]) -> Inputs:
    """The changed problem of a step with its layout, in which only these words change something: no search decides
    layers of stages, so where these change, all other fields keep their values.
    """
    ((name, layout),) = step.layouts.items()
    given = {word.partition("=")[0].strip() for word in words} | IMPLIED
    unchanged = {key: value for key, value in decided_fields(fixable_layout(layout)).items() if key not in FOLLOWING}
    wish = {key: value for key, value in decided_fields(inputs.job.layout).items() if key in given}
    layouts = {name: Parallelism(**unchanged | wish)}
    return change_job(inputs, layout=Parallelism(), fix=with_fields(inputs.job.fix, layouts=layouts))


def priced_as_fixed(inputs: Inputs) -> Plan:
    """The plan of the layout that a problem fixes. Raises InputError, and Infeasible where it does not fit."""
    predicted = predict_job(inputs)
    for scored in predicted.scores:
        require_memory(predicted.plan, scored)
    return predicted.plan


def with_feasible_fix(binding: Infeasibility, feasible: str) -> Infeasibility:
    """Add the nearest feasible change as a fix. For fewer ranks it replaces the solver's, which counts states only."""
    if feasible.startswith(("ranks", "nodes")):
        return with_fields(binding, fix=feasible)
    return with_fields(binding, fix=", or ".join(filter(None, (feasible, binding.fix))))


def nearest_feasible(unchanged: Inputs, words: tuple[str, ...], resolve: SolveAgain) -> str:
    """`nodes=4` where `nodes=1` is infeasible, other changes unchanged; empty when no single change suffices. By
    bisection: feasibility is monotone in these keys.
    """
    for at, word in enumerate(words):
        key, _, value = (part.strip() for part in word.partition("="))
        tries = [f"{key}={other}" for other in values_to_plan(unchanged, key, int(value) if value.isdigit() else 0)]

        def feasible(tried: str, at: int = at) -> bool:
            return is_feasible(unchanged, (*words[:at], tried, *words[at + 1 :]), resolve)

        if tries and feasible(tries[-1]):
            return tries[bisect_left(tries, True, hi=len(tries) - 1, key=feasible)]
    return ""


def values_to_plan(inputs: Inputs, key: str, asked: int) -> Sequence[int]:
    """Values from the requested one up to the plan's, or to the largest degree of an item, rising."""
    every = {"ranks": inputs.cluster.size, "nodes": inputs.cluster.size // inputs.cluster.ranks[0].per_node}
    degrees = sorted(inputs.job.degrees) if ITEM.fullmatch(key) else ()
    return range(asked + 1, every[key] + 1) if key in every else [degree for degree in degrees if degree > asked]


def is_feasible(inputs: Inputs, words: tuple[str, ...], resolve: SolveAgain) -> bool:
    """Whether the problem with these changes is feasible; effort 1 suffices to tell."""
    changed, _, unable = apply_implied(apply_changes(inputs, words), words)
    return not unable and isinstance(solved_again(replace(changed, effort=1), resolve), Solved)


# -------------------------------------------------------------------------------------------------- several modules


def try_modules(step: Plan, words: tuple[str, ...], resolve: SolveAgain) -> Trial:
    """Solve the problem of several modules with a change: the others kept, and decided again; and unchanged."""
    problem = plan_inputs(step)
    unable = unsupported_together(problem)
    if unable:
        message, _, fix = unable.partition(" | ")
        raise InputError(message, where="the plan", fix=fix)
    change = apply_module_changes(problem, words)
    again = solved(partial(placed_again, problem, step, step.layouts))
    alone = solved(partial(kept_plan, change, step))
    outcomes = {True: alone}
    if step.made.strategy in STRATEGIES:
        outcomes[False] = solved(partial(decided_again, change, step, resolve))
    plans = {keeps: outcome for keeps, outcome in outcomes.items() if isinstance(outcome, Solved)}
    keeps = min(plans, key=lambda keeps: (plans[keeps].seconds, not keeps), default=True)
    kept = {
        "kept": keeps,
        "kept_seconds": plans[True].seconds if True in plans else None,
        "kept_because": alone.message if isinstance(alone, Infeasibility) else "",
    }
    if plans:
        return Trial(plans[keeps], followed(change, step.layouts, plans[keeps].plan.layouts), again, kept)
    *_, binding = (outcome for outcome in outcomes.values() if isinstance(outcome, Infeasibility))
    return Trial(with_nearest(binding, alone, change, step.layouts), (), again, kept)


def with_nearest(
    binding: Infeasibility, kept: Solved | Infeasibility, change: AskedChange, layouts: Mapping[str, Layout]
) -> Infeasibility:
    """What binds, with the nearest further change that fits as its fix where memory binds with the others `kept`."""
    if isinstance(kept, Solved) or kept.where != "memory":
        return binding
    changed = changed_layouts(change.inputs, change.asked, layouts)

    def stays(each: FieldChange) -> bool:
        return getattr(change.asked.get(each.module), each.field, None) is not None

    nearest = fitting_change(change.inputs, changed, may=lambda each: not stays(each))
    return with_fields(binding, fix=" and ".join(nearest.differences) + " as well" if nearest else binding.fix)
