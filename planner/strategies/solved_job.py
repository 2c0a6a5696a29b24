"""What solving a job gives: the plan of all its batches, and how long that took."""

from dataclasses import dataclass

from planner.plan.plan_file import Plan


@dataclass(frozen=True, slots=True)
class SolvedJob:
    """A plan, and the seconds that solving each of its steps took; `told`: lines about the run that it is a step of."""

    plan: Plan
    step_seconds: tuple[float, ...]
    told: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(self.step_seconds)
