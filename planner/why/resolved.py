"""A changed problem, solved: a plan that fits and its score, or the binding constraint; and what the step gains."""

from collections.abc import Callable
from typing import NamedTuple

from planner.errors import Infeasible, InputError, PlannerError, Unsupported
from planner.layouts import fixed_fields
from planner.plan.launchable.launch_refusals import first_refusal, refusal_text
from planner.plan.plan_file import Plan
from planner.scoring import Score, require_memory, score
from planner.specs.base import Spec
from planner.specs.inputs import Inputs
from planner.strategies.static import impossible_fields

SolveAgain = Callable[[Inputs], Plan]  # solves, and checks the plan; raises Infeasible


class Infeasibility(Spec, omit_defaults=False):
    """Why a change is infeasible: the binding constraint, and the smallest change that would lift it."""

    message: str
    where: str
    fix: str
    illegal: bool = False  # whether a job that fixes it is refused as input: no memory or network would do


class Solved(NamedTuple):
    """A plan of one step that fits, and its score."""

    plan: Plan
    score: Score

    @property
    def seconds(self) -> float:
        """Seconds of the plan's step."""
        return self.score.step_seconds


class Sensitivity(Spec, omit_defaults=False):
    """One changed resource or decision, and the step with it."""

    what: str
    seconds: float | None  # of the step; None: infeasible
    saved: float | None  # negative: it takes longer
    share: float | None  # of the step
    because: str  # binding constraint where it is infeasible


def solved(solve: Callable[[], Plan]) -> Solved | Infeasibility:
    """A plan that fits, or what binds, an input error of the change too."""
    try:
        plan = solve()
        scored = score(plan)
        require_memory(plan, scored)
    except (InputError, Infeasible) as error:
        return infeasibility(error)
    return Solved(plan, scored)


def solved_again(inputs: Inputs, resolve: SolveAgain) -> Solved | Infeasibility:
    """The plan that a strategy gives a problem, or what binds: what cannot be launched, exclusive fields, or memory."""
    refusal = first_refusal(inputs, fixed_fields(inputs))
    if refusal:
        message = refusal_text(inputs.software.name, refusal)
        return Infeasibility(message=message, where="software", fix=refusal.fix, illegal=True)
    impossible = impossible_fields(inputs)
    if impossible:
        return Infeasibility(message=impossible[0], where="layouts", fix=impossible[1], illegal=True)
    try:
        plan = resolve(inputs)
    except Infeasible as error:
        return infeasibility(error)
    return Solved(plan, score(plan))


def infeasibility(error: PlannerError) -> Infeasibility:
    """What binds, as the error of a solver or of an input says it."""
    illegal = isinstance(error, InputError) and not isinstance(error, Unsupported)
    return Infeasibility(message=error.message, where=error.where, fix=error.fix, illegal=illegal)


def gain_of(what: str, changed: Solved | Infeasibility | float, before: float) -> Sensitivity:
    """What a changed step saves of one that took `before` seconds; or why there is none."""
    if isinstance(changed, Infeasibility):
        return Sensitivity(what=what, seconds=None, saved=None, share=None, because=changed.message)
    seconds = changed.seconds if isinstance(changed, Solved) else changed
    saved = before - seconds
    return Sensitivity(what=what, seconds=seconds, saved=saved, share=saved / before if before else 0.0, because="")
