"""One thing that could be better, and what the step gains by it."""

from planner.specs.base import Spec


class Sensitivity(Spec, omit_defaults=False):
    """One changed resource or decision, and the step with it."""

    what: str
    seconds: float | None  # of the step; None: infeasible
    saved: float | None  # negative: it takes longer
    share: float | None  # of the step
    because: str  # binding constraint where it is infeasible


def sensitivity_of(what: str, before: float, seconds: float) -> Sensitivity:
    """The gain of a step that took `before` seconds."""
    saved = before - seconds
    return Sensitivity(what=what, seconds=seconds, saved=saved, share=saved / before if before else 0.0, because="")
