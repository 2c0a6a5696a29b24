"""What the clock of decisions is about: events, actions, jobs as they are, what a policy sees, and what happened."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple

from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet

What = Literal["arrival", "end", "restart", "wake"]
Do = Literal["start", "resize", "move", "pack", "stop", "wait"]


class Event(NamedTuple):
    """All that happens at one instant: what, and to which job; a wake is of none."""

    at: float
    happened: tuple[tuple[What, str], ...]

    @property
    def changes(self) -> bool:
        """Whether others may run from then on: a restart, or being woken, changes nothing."""
        return any(what not in ("restart", "wake") for what, _ in self.happened)


class Action(NamedTuple):
    """What a policy decides about one job, and why."""

    do: Do
    job: str = ""
    gpus: tuple[int, ...] = ()
    reason: str = ""
    until: float = 0.0  # of `wait`


class Decision(NamedTuple):
    """The actions at an event."""

    event: Event
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """A job that waits (no GPUs) or runs."""

    job: ClusterJob
    number: int  # in order of arrival
    kinds: tuple[str, ...]  # that it may run on with as many GPUs as it asks for
    left: float = 1.0  # of its work, at `ready`
    attained: float = 0.0  # GPU-seconds, at `since`
    started: float | None = None  # when first
    gpus: tuple[int, ...] = ()
    kind: str = ""
    since: float = 0.0  # when it was given these GPUs
    ready: float = 0.0  # when it makes progress on them
    seconds: float = inf  # for all of its work on them
    end: float = inf  # if nothing happens before
    beside: str = ""  # the job that it shares them with

    def left_at(self, now: float) -> float:
        """What is left of its work."""
        return self.left - max(0.0, now - self.ready) / self.seconds if self.gpus else self.left

    def attained_at(self, now: float) -> float:
        """GPU-seconds that it has had."""
        return self.attained + len(self.gpus) * (now - self.since)


def arrived(job: ClusterJob, number: int, fleet: Fleet) -> JobState:
    """A job that waits, and has had nothing yet."""
    return JobState(job, number, fleet.kinds_for(job))


@dataclass(frozen=True, slots=True)
class State:
    """What a policy sees. The mappings are views, which nobody can change, and hold for the event they come with."""

    now: float
    fleet: Fleet
    waiting: Mapping[str, JobState]  # in order of arrival
    running: Mapping[str, JobState]
    free: Mapping[int, frozenset[int]]  # node → its free GPUs
    restart_s: float = 0.0  # without progress, of a job that starts again, moves or is resized

    def free_counts(self) -> dict[str, int]:
        """Kind → free GPUs."""
        counts = dict.fromkeys(self.fleet.counts, 0)
        for number, gpus in self.free.items():
            counts[self.fleet.nodes[number].kind] += len(gpus)
        return counts

    def room_of_all(self) -> dict[str, int]:
        """Kind → GPUs that are free, or that a job has."""
        counts = self.free_counts()
        for run in self.running.values():
            counts[run.kind] += len(run.gpus)
        return counts


class Segment(NamedTuple):
    """A job on the same GPUs, from when it was given them until it ended, moved or stopped."""

    job: str
    kind: str
    gpus: tuple[int, ...]
    since: float
    ready: float
    until: float
    work: float  # of the job's, that was done and is kept
    beside: str


@dataclass(slots=True)
class History:
    """What happened."""

    decisions: list[Decision] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)  # job → when it ended
    moves: int = 0  # restarts of any kind: moved, resized, or started again


Decide = Callable[[State, Event], Iterable[Action]]


def known_seconds(job: ClusterJob, kind: str, count: int, beside: ClusterJob | None) -> float | None:
    """As the job says, alone or beside another."""
    alone = job.seconds_on(kind, count)
    if alone is None or beside is None:
        return alone
    share = job.share_beside(beside, kind, count)
    return alone / share if share else None
