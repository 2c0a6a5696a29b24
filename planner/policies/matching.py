"""Two jobs on one GPU: who would wait is packed beside who has one, by a matching of most weight (Tesserae).

A host has a GPU to itself by the order and place; a guest would have none. The weight of a pair is what both gain
beside each other less what the host gains alone,

    gain(host) (share(host | guest) - 1) + gain(guest) share(guest | host)

where a share is the measured part of its speed alone, and the gain is the order's: jobs that end per second (`srtf`),
how neglected it is (`las`), or the same for all. Pairs that were not measured, or lose, are none. Guests are in the
queue as those who wait are: whoever of them gets a GPU moves there.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from planner.policies.orders import Order
from planner.policies.want import Wants
from planner.policies.wanted_actions import decided_anew, started
from planner.programs import heaviest_matching
from planner.simulate import Action, Event, JobState, State

STAYS = 1.1  # times its weight counts a pair that there is: changing it costs a restart, and gains little
Places = Mapping[str, tuple[int, ...]]  # job → its GPUs


@dataclass(frozen=True, slots=True)
class PackingPolicy:
    """An order and place, and pairs of the rest. `anew`: running jobs are decided about, too."""

    order: Order
    wants_of: Callable[[State, Event], Wants]
    anew: bool

    def __call__(self, state: State, event: Event) -> list[Action]:
        if not event.changes:
            return []
        guests = [job for job, run in state.running.items() if is_guest(run, state)]
        apart = without_guests(state, guests)
        wants = self.wants_of(apart, event)
        actions = {each.job: each for each in (decided_anew if self.anew else started)(apart, wants)}
        places = {job: run.gpus for job, run in apart.running.items() if job not in actions}
        places |= {each.job: each.gpus for each in actions.values() if each.gpus}
        stay = {} if self.anew else {job: state.running[job].beside for job in guests if job not in places}
        pairs = self.pairs(apart, {h: p for h, p in places.items() if h not in stay.values()}, {*places, *stay})
        for guest, host in {**stay, **pairs}.items():
            run = state.running.get(guest)
            if run and run.beside == host and host not in actions:
                actions.pop(guest, None)
            else:
                actions[guest] = Action("pack", guest, places[host], "beside each other they gain most")
        return [*in_turn(actions, state, [job for job in guests if job not in {**stay, **pairs}])]

    def pairs(self, state: State, places: Places, others: Collection[str]) -> dict[str, str]:
        """Guest → host."""
        jobs = {**state.running, **state.waiting}
        hosts = [jobs[job] for job, gpus in places.items() if len(gpus) == 1 and jobs[job].job.beside]
        guests = [job for name, job in jobs.items() if name not in others and job.job.gpus == 1 and job.job.beside]
        if not hosts or not guests:
            return {}
        kinds = [state.fleet.kind_of[places[host.job.id][0]] for host in hosts]
        weights = self.weights(state, hosts, kinds, guests)
        at = {job.job.id: place for place, job in enumerate(guests)}
        for number, host in enumerate(hosts):
            if host.beside in at:
                weights[number, at[host.beside]] *= STAYS
        matched = heaviest_matching(weights)
        return {guests[guest].job.id: hosts[host].job.id for host, guest in matched}

    def weights(
        self, state: State, hosts: Sequence[JobState], kinds: Sequence[str], guests: Sequence[JobState]
    ) -> NDArray[np.float64]:
        """Of every pair, (hosts, guests); none is 0."""
        weights = np.zeros((len(hosts), len(guests)))
        for kind in {*kinds}:
            on_it = [number for number, own in enumerate(kinds) if own == kind]
            theirs = np.array([self.gain(state, job, kind) for job in guests])
            own = np.array([self.gain(state, hosts[number], kind) for number in on_it])
            slowed = np.array([[hosts[number].job.share_beside(job.job, kind) for job in guests] for number in on_it])
            share = np.array([[job.job.share_beside(hosts[number].job, kind) for job in guests] for number in on_it])
            gained = own[:, None] * (slowed - 1) + theirs * share
            weights[on_it] = np.where((slowed > 0) & (share > 0), gained, 0.0)
        return weights

    def gain(self, state: State, job: JobState, kind: str) -> float:
        """What a job gains by a GPU of a kind to itself."""
        if kind not in job.kinds:
            return 0.0
        return self.order.gain(state, job, kind) if self.order.gain else 1.0


def is_guest(run: JobState, state: State) -> bool:
    """Whether a job came later than whom it shares a GPU with."""
    return bool(run.beside) and run.number > state.running[run.beside].number


def without_guests(state: State, guests: Collection[str]) -> State:
    """The state in which guests wait, in order of arrival with the others."""
    if not guests:
        return state
    running = {job: run for job, run in state.running.items() if job not in guests}
    waiting = {**state.waiting, **{job: waits(state.running[job], state.now) for job in guests}}
    ordered = dict(sorted(waiting.items(), key=lambda item: item[1].number))
    return replace(state, running=MappingProxyType(running), waiting=MappingProxyType(ordered))


def waits(run: JobState, now: float) -> JobState:
    """A running job as it would be if it were stopped."""
    return JobState(run.job, run.number, run.kinds, run.left_at(now), run.attained_at(now), run.started)


def in_turn(actions: Mapping[str, Action], state: State, gone: Collection[str]) -> Iterator[Action]:
    """Actions as the state has it: guests that get a GPU move, those without a place stop; packs come last."""
    yield from (Action("stop", job, reason="others come first") for job in gone if job not in actions)
    for packs in (False, True):
        for job, each in actions.items():
            if (each.do == "pack") == packs:
                yield each._replace(do="move") if each.do == "start" and job in state.running else each
