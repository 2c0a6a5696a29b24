"""What a policy wants of a job: so many GPUs of a kind."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.simulate import JobState


@dataclass(frozen=True, slots=True)
class Want:
    """So many GPUs of a kind for a job, and why."""

    kind: str
    gpus: int
    reason: str

    def is_had(self, run: JobState) -> bool:
        return (self.kind, self.gpus) == (run.kind, len(run.gpus))


Wants = Mapping[str, Want]  # by job
