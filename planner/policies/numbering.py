"""Which GPUs: as few jobs move as can be, and none gets GPUs on more nodes than a plan from nothing gives it.

A plan from nothing places jobs in the order of their counts, the largest first, on as few nodes as will do: the fullest
node that has room for all, else the emptiest ones. A job keeps its GPUs where they are on no more nodes than that. If
all that may keep theirs do, the others often fit between them, as near together as planned. Else an integer program
chooses, for each kind of GPU:

    maximise  sum z(j)                                            z(j): job j keeps its GPUs
    such that for each shape s, of c(s) GPUs on one node:         u(s, n): jobs of the shape that get theirs on node n
                  sum_n u(s, n) + sum_{j of s} z(j) = jobs of s
              for each job i of a shape on several nodes:         p(i, n): its GPUs on node n;  b(i, n): whether any
                  sum_n p(i, n) = c(s) y(i),  p(i, n) <= GPUs(n) b(i, n),  sum_n b(i, n) <= nodes(s)
                  sum_i y(i) + sum_{j of s} z(j) = jobs of s
              for each node:
                  sum_s c(s) u(s, n) + sum_i p(i, n) + sum_j (GPUs of j there) z(j) <= GPUs(n)

All numberings of GPUs are in it, also those that do not take nodes to nodes (Tesserae matches these).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.policies.want import Wants
from planner.programs import Floats, ProgramBuilder, solve
from planner.simulate import State
from planner.specs.cluster_jobs.jobs import Fleet

Places = dict[str, tuple[int, ...]]  # job → its GPUs
Room = dict[int, set[int]]  # node → GPUs of no job


class Shape(NamedTuple):
    """What jobs have to have in common to change places."""

    gpus: int
    nodes: int  # at most


def numbered(state: State, wants: Wants) -> Places:
    """The GPUs of every job that is wanted."""
    room = room_of_all(state)
    planned = placed(copied(room), state.fleet, wants)
    nodes = {job: len(nodes_of(state.fleet, gpus)) for job, gpus in planned.items()}
    kept = {
        job: run.gpus
        for job, run in state.running.items()
        if job in wants and wants[job].is_had(run) and len(nodes_of(state.fleet, run.gpus)) <= nodes[job]
    }
    others = {job: want for job, want in wants.items() if job not in kept}
    places = kept | placed(left_by(kept, room, state.fleet), state.fleet, others)
    for kind in sorted(
        {wants[job].kind for job, gpus in places.items() if len(nodes_of(state.fleet, gpus)) > nodes[job]}
    ):
        there = {number: gpus for number, gpus in room.items() if state.fleet.nodes[number].kind == kind}
        shapes: dict[Shape, list[str]] = {}
        for job, want in wants.items():
            if want.kind == kind:
                shapes.setdefault(Shape(want.gpus, nodes[job]), []).append(job)
        found = Renumbering(state, there, shapes, kept).places()
        places |= found or {job: planned[job] for job, want in wants.items() if want.kind == kind}
    return places


@dataclass(frozen=True, slots=True)
class Renumbering:
    """The program of this page for one kind: its nodes, its jobs by shape, and who may keep which GPUs."""

    state: State
    room: Room
    shapes: Mapping[Shape, list[str]]
    kept: Places

    def places(self) -> Places:
        """The GPUs of each job; empty where the solver found none within its work."""
        builder, used = ProgramBuilder(), {node: dict[int, float]() for node in self.room}
        here = [job for jobs in self.shapes.values() for job in jobs]
        keeps = {job: self.keep(builder, used, job) for job in here if job in self.kept}
        parts = {shape: [*self.parts(builder, used, shape, jobs, keeps)] for shape, jobs in self.shapes.items()}
        for node, terms in used.items():
            builder.row(terms, upper=float(len(self.room[node])))
        values = solve(builder.build()).values
        if values is None:
            return {}
        places = {job: self.kept[job] for job, variable in keeps.items() if values[variable] > 0.5}
        room = left_by(places, self.room, self.state.fleet)
        for shape, jobs in self.shapes.items():
            homes = (home for variables in parts[shape] for home in homes_of(shape, variables, values))
            for job, home in zip((job for job in jobs if job not in places), homes, strict=True):
                places[job] = tuple(gpu for node, count in home.items() for gpu in taken(room[node], count))
        return places

    def keep(self, builder: ProgramBuilder, used: Mapping[int, dict[int, float]], job: str) -> int:
        """Whether a job keeps its GPUs: of a pair, both do."""
        run = self.state.running[job]
        variable = builder.variable(0, 1, integer=True, cost=-2.0 if run.beside else -1.0)
        for node, count in Counter(self.state.fleet.node_of[gpu] for gpu in run.gpus).items():
            used[node][variable] = float(count)
        return variable

    def parts(
        self,
        builder: ProgramBuilder,
        used: Mapping[int, dict[int, float]],
        shape: Shape,
        jobs: Collection[str],
        keeps: Mapping[str, int],
    ) -> Iterator[dict[int, int]]:
        """Variables by node: how many jobs of a shape, or how many GPUs of each job on several nodes, get there."""
        count, most = float(len(jobs)), {node: len(gpus) for node, gpus in self.room.items()}
        all_of = {keeps[job]: 1.0 for job in jobs if job in keeps}
        if shape.nodes == 1:
            own = {n: builder.variable(0, size // shape.gpus, integer=True) for n, size in most.items()}
            for node, variable in own.items():
                used[node][variable] = float(shape.gpus)
                all_of[variable] = 1.0
            yield own
        for _ in jobs if shape.nodes > 1 else ():
            here = builder.variable(0, 1, integer=True)
            own = {n: builder.variable(0, size, integer=True) for n, size in most.items()}
            joins = {n: builder.variable(0, 1, integer=True) for n in most}
            builder.row({**dict.fromkeys(own.values(), 1.0), here: -float(shape.gpus)}, lower=0.0, upper=0.0)
            builder.row(dict.fromkeys(joins.values(), 1.0), upper=float(shape.nodes))
            for node, variable in own.items():
                builder.row({variable: 1.0, joins[node]: -float(most[node])}, upper=0.0)
                used[node][variable] = 1.0
            all_of[here] = 1.0
            yield own
        builder.row(all_of, lower=count, upper=count)


def homes_of(shape: Shape, variables: Mapping[int, int], values: Floats) -> Iterator[dict[int, int]]:
    """Node → GPUs of each job that gets others."""
    counts = {node: round(values[variable]) for node, variable in variables.items() if values[variable] > 0.5}
    if shape.nodes > 1:
        yield from [counts] * bool(counts)
        return
    for node, count in counts.items():
        yield from [{node: shape.gpus}] * count


def room_of_all(state: State) -> Room:
    """All GPUs that are free, or that a job has."""
    room = {number: {*gpus} for number, gpus in state.free.items()}
    for run in state.running.values():
        for gpu in run.gpus:
            room[state.fleet.node_of[gpu]].add(gpu)
    return room


def left_by(places: Places, room: Room, fleet: Fleet) -> Room:
    left = copied(room)
    for gpus in places.values():
        for gpu in gpus:
            left[fleet.node_of[gpu]].discard(gpu)
    return left


def copied(room: Room) -> Room:
    return {node: {*gpus} for node, gpus in room.items()}


def nodes_of(fleet: Fleet, gpus: Collection[int]) -> set[int]:
    return {fleet.node_of[gpu] for gpu in gpus}


def taken(gpus: set[int], count: int) -> list[int]:
    """So many of them, which are then gone."""
    some = sorted(gpus)[:count]
    gpus.difference_update(some)
    return some


def placed(room: Room, fleet: Fleet, wants: Wants) -> Places:
    """GPUs out of what room there is, for the largest counts first."""
    return {
        job: nearest_gpus(room, fleet, want.kind, want.gpus)
        for job, want in sorted(wants.items(), key=lambda item: -item[1].gpus)
    }


def nearest_gpus(room: Room, fleet: Fleet, kind: str, count: int) -> tuple[int, ...]:
    """Take so many GPUs of a kind, which are there, from as few nodes as will do."""
    nodes = [number for number, gpus in room.items() if gpus and fleet.nodes[number].kind == kind]
    whole = [number for number in nodes if len(room[number]) >= count]
    if whole:
        nodes = [min(whole, key=lambda number: len(room[number]))]
    else:
        nodes.sort(key=lambda number: -len(room[number]))
    chosen: list[int] = []
    for number in nodes:
        chosen += taken(room[number], count - len(chosen))
        if len(chosen) == count:
            break
    return tuple(chosen)
