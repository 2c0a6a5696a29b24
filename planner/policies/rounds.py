"""Time in rounds: shares of time become who runs in the next round.

First come those who are furthest behind their share: share(j, k) over the part of the time on kind k since the shares
were last computed that job j had (Gavel, OSDI 2020, section 5). GPUs that are left go to jobs that have no share there,
to those first that end soonest.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from planner.policies.fair import Shares
from planner.policies.orders import seconds_left
from planner.policies.want import Want, Wants
from planner.policies.wanted_actions import decided_anew
from planner.simulate import Action, Event, JobState, State


@dataclass(frozen=True, slots=True)
class RoundLength:
    """Seconds of a round, and those for which shares are kept at least; `fixed`: GPUs of a job that ends within a round
    stay idle until the round does.
    """

    seconds: float = 360.0
    kept: float = 0.0
    fixed: bool = False


GAVEL = RoundLength(
    360.0, 1920.0, fixed=True
)  # its scheduler: time_per_iteration, minimum_time_between_allocation_resets


@dataclass(slots=True)
class RoundPolicy:
    """Decides anew at the end of each round; remembers how long each job had each kind. `fill`: whether GPUs are given
    to jobs without a share.
    """

    shares_of: Callable[[State], Shares]
    length: RoundLength
    fill: bool = True
    shares: Shares = field(default_factory=dict)
    had: dict[tuple[str, str], float] = field(default_factory=dict)  # job and kind → seconds since `computed`
    computed: float = -inf
    changed: bool = False
    last: float = 0.0  # decision
    until: float = -inf  # end of the round

    def __call__(self, state: State, event: Event) -> Iterable[Action]:
        self.changed |= event.changes
        goes_on = state.now < self.until and state.running
        if goes_on and (self.length.fixed or not event.changes):
            return []
        for job, run in state.running.items():
            self.had[job, run.kind] = self.had.get((job, run.kind), 0.0) + state.now - self.last
        self.last = state.now
        if self.changed and state.now - self.computed >= self.length.kept:
            self.shares, self.had, self.computed, self.changed = self.shares_of(state), {}, state.now, False
        actions = decided_anew(state, self.wants(state))
        if (state.running or state.waiting) and (self.until <= state.now or self.length.fixed):
            self.until = state.now + self.length.seconds
            actions.append(Action("wait", until=self.until, reason="the next round"))
        return actions

    def wants(self, state: State) -> Wants:
        """Who runs in the next round: kind after kind, the quickest first; on each who is furthest behind."""
        room, wants = state.room_of_all(), dict[str, Want]()
        jobs = {**state.running, **state.waiting}
        for kind in sorted(room, key=lambda kind: -speed_on(jobs.values(), kind)):
            able = {job: each for job, each in jobs.items() if kind in each.kinds}
            ranks = {
                job: (-self.behind(job, kind), seconds_left(state, each, kind, each.job.gpus))
                for job, each in able.items()
            }
            for job in sorted(able, key=lambda job: ranks[job]):
                count, behind = able[job].job.gpus, -ranks[job][0]
                if job not in wants and count <= room[kind] and (behind or self.fill):
                    share = f"its share of {kind} is {self.shares.get((job, kind), 0.0):.0%} of the time"
                    wants[job] = Want(kind, count, share if behind else "GPUs are left, and it ends soonest there")
                    room[kind] -= count
        return wants

    def behind(self, job: str, kind: str) -> float:
        """How often its time on a kind goes into its share; half a round counts as had."""
        return self.shares.get((job, kind), 0.0) / (self.had.get((job, kind), 0.0) + self.length.seconds / 2)


def speed_on(jobs: Iterable[JobState], kind: str) -> float:
    """Of the best speed of each job, what all of them would have there."""
    return sum(job.job.best_seconds / (job.job.seconds_on(kind, job.job.gpus) or inf) for job in jobs)
