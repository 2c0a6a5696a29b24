"""How quick replicas of a layout are whose ranks are of several kinds, and how many items each has for it.

A replica with m micro-batches takes m·t + Σ t_s − t, of stages that take t_s each and the slowest t. Each item, longest
first, goes to the replica that would be done with it first: of equal items, that is the least time of the slowest
replica that any numbers of micro-batches give. Gradients are summed over tokens, and divided once by all of them, so
that it does not matter who has how many.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from planner.costs import Pricing
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Group, Layout
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks


class ReplicaSeconds(NamedTuple):
    """Seconds of an item on a replica, by its tokens, and of a micro-batch around its slowest stage."""

    seconds: Mapping[int, float]
    fill: float


def has_several_kinds(pricing: Pricing, layout: Layout) -> bool:
    """Whether the ranks of a layout are of several kinds."""
    return len(pricing.cluster.ranks) > 1 and len(pricing.device_kinds(layout.ranks)) > 1


def replica_seconds(
    pricing: Pricing, module: str, layout: Layout, groups: Sequence[Group], lengths: Sequence[int]
) -> list[ReplicaSeconds]:
    """The seconds of each replica, on items of these tokens, in micro-batches of as many as the layout has."""
    stages = layout.stages or (Layers(range(pricing.models[module].layers)),)
    holding = [frozenset(stage_ranks(layout, stage)) for stage in range(layout.pp)]
    known: dict[object, ReplicaSeconds] = {}
    replicas = list[ReplicaSeconds]()
    for group in groups:
        own = [Ranks(rank for rank in group.ranks if rank in of_stage) for of_stage in holding]
        key = tuple(pricing.device_kinds(ranks) for ranks in own)
        if key not in known:
            known[key] = seconds_of_replica(pricing, module, layout, own, stages, lengths)
        replicas.append(known[key])
    return replicas


def seconds_of_replica(
    pricing: Pricing,
    module: str,
    layout: Layout,
    of_stages: Sequence[Ranks],
    stages: Sequence[Layers],
    lengths: Sequence[int],
) -> ReplicaSeconds:
    """The seconds of the replica with these ranks on its stages, of which each has every `pp`-th of the chunks."""
    seconds, fills = dict[int, float](), list[float]()
    for length in lengths:
        each = [
            sum(both_passes(pricing, module, layout, ranks, chunk, length) for chunk in stages[number :: layout.pp])
            for number, ranks in enumerate(of_stages)
        ]
        seconds[length] = max(each) / layout.micro_batch
        fills.append((sum(each) - max(each)) / layout.vpp)
    return ReplicaSeconds(seconds, sum(fills) / len(fills))


def both_passes(pricing: Pricing, module: str, layout: Layout, ranks: Ranks, layers: Layers, length: int) -> float:
    """Seconds of forward and backward of a micro-batch of items of `length` tokens each, through these layers."""
    phases: tuple[Phase, ...] = ("F", "B")
    sizes, split = (length,) * layout.micro_batch, layout.default_split
    every = (
        Task(module, layers, phase, 0, "all", ranks, sizes, (0,) * len(sizes), split.degree, ring=split.ring)
        for phase in phases
    )
    return sum(pricing.pass_cost(task).value for task in every)


def assign_soonest(
    items: Sequence[int], lengths: Mapping[int, int], replicas: Sequence[ReplicaSeconds], together: int
) -> list[list[int]]:
    """The items of each replica, `together` at a time: each goes where it is done first; of equals to the first."""
    kinds: dict[int, list[int]] = {}
    for number, replica in enumerate(replicas):
        kinds.setdefault(id(replica), []).append(number)
    of_kind = [
        (replicas[numbers[0]], [(replicas[numbers[0]].fill, number) for number in numbers])
        for numbers in kinds.values()
    ]
    for _, waiting in of_kind:
        heapify(waiting)
    assigned: list[list[int]] = [[] for _ in replicas]
    for start in range(0, len(items), together):
        some = items[start : start + together]
        more = [sum(replica.seconds[lengths[item]] for item in some) for replica, _ in of_kind]
        place = min(range(len(of_kind)), key=lambda at: (of_kind[at][1][0][0] + more[at], of_kind[at][1][0][1]))
        load, number = heappop(of_kind[place][1])
        assigned[number] += some
        heappush(of_kind[place][1], (load + more[place], number))
    return assigned
