"""What a policy wants, job by job, as actions: who starts, stops, moves, and on which GPUs.

A running job that is wanted as it runs keeps its GPUs. All others get theirs in the order of their counts, the largest
first, on as few nodes as will do: the fullest node that has room for all, else the emptiest ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.simulate import Action, Do, JobState, State
from planner.specs.cluster_jobs.jobs import Fleet


@dataclass(frozen=True, slots=True)
class Want:
    """So many GPUs of a kind for a job, and why."""

    kind: str
    gpus: int
    reason: str

    def is_had(self, run: JobState) -> bool:
        return (self.kind, self.gpus) == (run.kind, len(run.gpus))


Wants = Mapping[str, Want]  # by job


def started(state: State, wants: Wants) -> list[Action]:
    """Starts of waiting jobs on GPUs that are free; what runs is left alone."""
    return [*given({number: {*gpus} for number, gpus in state.free.items()}, state, wants)]


def decided_anew(state: State, wants: Wants) -> list[Action]:
    """Actions after which exactly the wanted jobs run, as they are wanted."""
    kept = {job for job, run in state.running.items() if job in wants and wants[job].is_had(run)}
    free = {number: {*gpus} for number, gpus in state.free.items()}
    for job, run in state.running.items():
        if job not in kept:
            for gpu in run.gpus:
                free[state.fleet.node_of[gpu]].add(gpu)
    stops = [Action("stop", job, reason="others come first") for job in state.running if job not in wants]
    return [*stops, *given(free, state, {job: want for job, want in wants.items() if job not in kept})]


def given(free: dict[int, set[int]], state: State, wants: Wants) -> Iterator[Action]:
    """GPUs for each job that is wanted, out of the free ones of each node."""
    for job, want in sorted(wants.items(), key=lambda item: -item[1].gpus):
        gpus = nearest_gpus(free, state.fleet, want.kind, want.gpus)
        run = state.running.get(job)
        do: Do = "start" if run is None else "move" if len(run.gpus) == want.gpus else "resize"
        yield Action(do, job, gpus, want.reason)


def nearest_gpus(free: dict[int, set[int]], fleet: Fleet, kind: str, count: int) -> tuple[int, ...]:
    """Take so many GPUs of a kind, which are there, from as few nodes as will do."""
    nodes = [number for number, gpus in free.items() if gpus and fleet.nodes[number].kind == kind]
    whole = [number for number in nodes if len(free[number]) >= count]
    if whole:
        nodes = [min(whole, key=lambda number: len(free[number]))]
    else:
        nodes.sort(key=lambda number: -len(free[number]))
    taken: list[int] = []
    for number in nodes:
        some = sorted(free[number])[: count - len(taken)]
        free[number].difference_update(some)
        taken += some
        if len(taken) == count:
            break
    return tuple(taken)
