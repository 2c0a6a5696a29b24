"""A clock that asks: jobs on GPUs, and at each event a policy that decides what happens next.

What happens is an arrival, an end, a restart (a job makes progress again), or the time at which the policy asked to be
woken; all of one instant are one event. The policy sees a state that it cannot change, and returns actions. They are
checked before any of them happens; GPUs of all that stop or move are free to all that start.

    start   a waiting job on free GPUs of one kind         pack    any job on the GPUs that another has to itself
    resize  a running job on another number of GPUs        stop    a running job: it waits, and keeps its work
    move    a running job on as many other GPUs            wait    ask again at `until`, if nothing happens before

A job's work is 1, and passes at 1 / seconds a second, which it says for a kind, a count and whom it is beside; whoever
starts again, moves or is resized holds its GPUs for `restart_s` seconds first. What runs for fixed times stands in
simulate/clock.py instead.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from planner.errors import Infeasible
from planner.simulate.action_check import holder, leaving_jobs, require_possible
from planner.simulate.decisions import (
    Action,
    Decide,
    Decision,
    Event,
    History,
    JobState,
    Segment,
    State,
    What,
    arrived,
    known_seconds,
)
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet


class Start(NamedTuple):
    """When a job gets its GPUs, how long it then makes no progress, and whom it shares them with."""

    now: float
    delay: float = 0.0
    beside: str = ""


class DecisionClock:
    """The heap of what is to come, and the jobs as they are."""

    def __init__(self, jobs: Sequence[ClusterJob], fleet: Fleet, restart_s: float) -> None:
        self.fleet, self.restart_s = fleet, restart_s
        self.heap: list[tuple[float, int, What, str]] = []
        self.pushed, self.numbers = 0, count()
        self.waiting: dict[str, JobState] = {}
        self.running: dict[str, JobState] = {}
        self.free = {number: frozenset(node.gpus) for number, node in enumerate(fleet.nodes)}
        self.history = History()
        self.jobs = {job.id: job for job in jobs}
        self.waiting_view, self.running_view = MappingProxyType(self.waiting), MappingProxyType(self.running)
        self.free_view = MappingProxyType(self.free)
        for job in jobs:
            self.push(job.submit_s, "arrival", job.id)

    def push(self, at: float, what: What, job: str = "") -> None:
        heapq.heappush(self.heap, (at, self.pushed, what, job))
        self.pushed += 1

    def state(self, now: float) -> State:
        return State(now, self.fleet, self.waiting_view, self.running_view, self.free_view, self.restart_s)

    def next_event(self) -> Event:
        """All that happens at the next instant; nothing, where what was to end has moved since."""
        at = self.heap[0][0]
        happened: list[tuple[What, str]] = []
        while self.heap and self.heap[0][0] == at:
            _, _, what, job = heapq.heappop(self.heap)
            if self.happens(at, what, job):
                happened.append((what, job))
        return Event(at, tuple(happened))

    def happens(self, at: float, what: What, job: str) -> bool:
        """Let it happen; False where it no longer does."""
        run = self.running.get(job)
        if what == "arrival":
            self.waiting[job] = arrived(self.jobs[job], next(self.numbers), self.fleet)
        elif what == "end":
            if not run or run.end != at:
                return False
            self.settle(job, at)
            self.history.ends[job] = at
        elif what == "restart":
            return run is not None and run.ready == at
        return True

    # ------------------------------------------------------------------------------------------- jobs and their GPUs

    def take(self, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            self.free[self.fleet.node_of[gpu]] -= {gpu}

    def give_back(self, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            self.free[self.fleet.node_of[gpu]] |= {gpu}

    def cut(self, job: str, now: float) -> JobState:
        """End a job's segment; as it is then."""
        run = self.running.pop(job)
        left = 0.0 if now == run.end else max(0.0, run.left_at(now))
        self.history.segments.append(
            Segment(job, run.kind, run.gpus, run.since, run.ready, now, run.left - left, run.beside)
        )
        return JobState(run.job, run.number, run.kinds, left, run.attained_at(now), run.started)

    def settle(self, job: str, now: float) -> JobState:
        """Take a job off its GPUs, which whom it shared them with has alone from then on."""
        run = self.running[job]
        state = self.cut(job, now)
        if run.beside:
            self.share(run.beside, now, "")
        else:
            self.give_back(run.gpus)
        return state

    def share(self, job: str, now: float, beside: str) -> None:
        """Go on with a job on its GPUs beside another, or alone."""
        run = self.running[job]
        self.run(job, self.cut(job, now), run.gpus, Start(now, max(0.0, run.ready - now), beside))

    def run(self, job: str, state: JobState, gpus: tuple[int, ...], start: "Start") -> None:
        """Put a job on GPUs."""
        kind = self.fleet.kind_of[gpus[0]]
        beside = self.jobs[start.beside] if start.beside else None
        ready, seconds = start.now + start.delay, known_seconds(state.job, kind, len(gpus), beside) or inf
        run = replace(
            state,
            started=start.now if state.started is None else state.started,
            gpus=gpus,
            kind=kind,
            since=start.now,
            ready=ready,
            seconds=seconds,
            end=ready + state.left * seconds,
            beside=start.beside,
        )
        self.running[job] = run
        self.take(gpus)
        self.push(run.end, "end", job)
        if start.delay:
            self.push(run.ready, "restart", job)

    # ----------------------------------------------------------------------------------------------------- decisions

    def decide(self, event: Event, actions: Sequence[Action]) -> None:
        """Check actions, and let them happen. Raises InputError: the first that cannot, and nothing has happened."""
        now = event.at
        require_possible(actions, self.state(now), f"decision {len(self.history.decisions)}")
        states = {job: self.settle(job, now) for job in leaving_jobs(actions, self.running)}
        for action in actions:
            state = states.get(action.job) or self.waiting.get(action.job)
            if action.do == "wait":
                self.push(action.until, "wake")
            elif action.do == "stop":
                self.waiting[action.job] = states[action.job]
            elif state:
                self.begin(action, state, now)
        self.history.decisions.append(Decision(event, tuple(actions)))

    def begin(self, action: Action, state: JobState, now: float) -> None:
        """Put the job of an action on its GPUs, beside whom it is packed with."""
        again = state.started is not None
        self.history.moves += again
        self.waiting.pop(action.job, None)
        beside = holder(action.gpus, self.running) if action.do == "pack" else ""
        self.run(action.job, state, action.gpus, Start(now, self.restart_s if again else 0.0, beside))
        if beside:
            self.share(beside, now, action.job)


def run_jobs(jobs: Sequence[ClusterJob], fleet: Fleet, decide: Decide, restart_s: float = 0.0) -> History:
    """Run jobs to their ends as a policy decides. Raises InputError for an action that cannot happen, and Infeasible
    where jobs wait and nothing will happen any more.
    """
    clock = DecisionClock(jobs, fleet, restart_s)
    while clock.heap:
        event = clock.next_event()
        if event.happened and len(clock.history.ends) < len(jobs):
            clock.decide(event, tuple(decide(clock.state(event.at), event)))
    if clock.waiting:
        job, *others = clock.waiting
        raise Infeasible(
            f"job `{job}` and {len(others)} others wait, and nothing runs",
            where=f"at {clock.history.decisions[-1].event.at:.9g} s" if clock.history.decisions else "",
            fix="a policy that starts what fits when everything is free",
        )
    return clock.history
