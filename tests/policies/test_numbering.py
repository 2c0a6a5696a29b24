"""Which GPUs jobs get: as few move as any numbering lets, and none is on more nodes than planned."""

from dataclasses import replace
from itertools import permutations
from random import Random

from planner.policies import placed
from planner.policies.numbering import numbered
from planner.policies.want import Want, Wants
from planner.simulate import State, arrived
from tests.cluster_jobs import fleet_of, job
from tests.examples import share


def random_decision(seed: int) -> tuple[State, Wants]:
    """Jobs that run anywhere on at most 6 GPUs, and others that wait; some of both are wanted."""
    draw = Random(seed)
    fleet = fleet_of(per_node=draw.choice([2, 3]), a=draw.choice([4, 5, 6]))
    free, running, waiting, wants = draw.sample(range(fleet.size), fleet.size), {}, {}, {}
    counts = iter(lambda: draw.choice([1, 1, 2, 2, 3, 4]), 0)
    left = fleet.size
    while free and draw.random() < 0.9:
        gpus, free = tuple(free[: (count := next(counts))]), free[count:]
        asked = job(f"runs-{len(running)}", 0, len(gpus), a=10.0)
        running[asked.id] = replace(arrived(asked, len(running), fleet), gpus=gpus, kind="a", end=10.0)
        if draw.random() < 0.75:
            wants[asked.id], left = Want("a", len(gpus), ""), left - len(gpus)
    while left and draw.random() < 0.9:
        asked = job(f"waits-{len(waiting)}", 0, min(left, next(counts)), a=10.0)
        waiting[asked.id], wants[asked.id] = arrived(asked, 9 + len(waiting), fleet), Want("a", asked.gpus, "")
        left -= asked.gpus
    by_node = {number: frozenset(node.gpus).intersection(free) for number, node in enumerate(fleet.nodes)}
    return State(0.0, fleet, waiting, running, by_node), wants


def test_as_few_jobs_move_as_by_the_best_of_all_numberings():
    """Of all permutations of the planned GPUs that give no job more nodes than planned."""
    for seed in range(share(300)):
        state, wants = random_decision(seed)
        node_of = state.fleet.node_of
        planned = placed({n: {*node.gpus} for n, node in enumerate(state.fleet.nodes)}, state.fleet, wants)
        nodes = {name: len({node_of[gpu] for gpu in gpus}) for name, gpus in planned.items()}

        def kept(places, state=state):
            return sum(name in state.running and {*state.running[name].gpus} == {*g} for name, g in places.items())

        def together(places, nodes=nodes, node_of=node_of):
            return all(len({node_of[gpu] for gpu in gpus}) <= nodes[name] for name, gpus in places.items())

        renumbered = (
            {name: [p[g] for g in gpus] for name, gpus in planned.items()}
            for p in permutations(range(state.fleet.size))
        )
        places = numbered(state, wants)
        assert kept(places) == max(kept(each) for each in renumbered if together(each))
        assert together(places)
        taken = [gpu for gpus in places.values() for gpu in gpus]
        assert len(taken) == len({*taken}) and {name: len(gpus) for name, gpus in places.items()} == {
            name: want.gpus for name, want in wants.items()
        }
