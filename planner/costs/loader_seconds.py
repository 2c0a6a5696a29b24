"""Seconds in which a data loader has the items of a step ready, from the measured or stated seconds of its stages.

Each rank loads the items of its groups, with workers of its own on the cores of its node, so that an item is loaded as
often as ranks of the node work on it (`LoaderReads.each_rank`); a loader for the node would load it once (`once`; as of
MegaScale, NSDI 2024). Items are samples: text with all that feeds it.

Workers run beside what a GPU trains, and the step takes as long as the slower of both. Where ranks train on the same
cores, nothing is beside anything: the step is what both take, one after the other.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.plan.plan_file import Plan, assignments
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import node_of_rank
from planner.specs.loader import LoaderFile, LoaderSettings, LoaderStage

CORES = "cores"  # the pool of workers


@dataclass(frozen=True, slots=True)
class LoaderWork:
    """What an item takes in a stage, or in all stages of a pool whose units they share, by the units that it is given.

    `seconds_with` takes a number of units, or an array of such.
    """

    name: str
    stages: tuple[str, ...]
    pool: str | None
    seconds: float  # on one unit
    constant: float
    machines: int = 1  # each works on items of its own

    def seconds_with(self, units: Any) -> Any:
        """Seconds of an item with so many units; of an array, an array."""
        return (self.seconds / units + self.constant) / self.machines


def loader_work(loader: LoaderFile) -> tuple[LoaderWork, ...]:
    """The stages that are given units of their own, in the file's order; those of a shared pool as one."""
    work: list[LoaderWork] = []
    for stage in loader.stages:
        pool = loader.pools[stage.pool] if stage.pool is not None else None
        together = [other for other in loader.stages if other.pool == stage.pool]
        if pool is None:
            work.append(joined(stage.name, None, [stage], 1))
        elif not (pool.shared or pool.units < len(together)):
            work.append(joined(stage.name, stage.pool, [stage], pool.machines))
        elif stage is together[0]:
            work.append(joined("+".join(each.name for each in together), stage.pool, together, pool.machines))
    return tuple(work)


def joined(name: str, pool: str | None, stages: Sequence[LoaderStage], machines: int) -> LoaderWork:
    """Stages of a pool as one, one after the other on each unit."""
    seconds, constant = sum(each.seconds for each in stages), sum(each.constant for each in stages)
    return LoaderWork(name, tuple(each.name for each in stages), pool, seconds, constant, machines)


def item_seconds(loader: LoaderFile, workers: int) -> float:
    """Seconds of an item with so many workers on one machine, on as many cores as it has; 0: without any, in the
    process that trains. As measured with so many; between and beyond, by a fit of what was; else by its stages,
    of which those on other pools have the units that the file gives them.
    """
    cores = loader.pools[CORES].units if CORES in loader.pools else 1
    used = min(workers, cores)
    measured = {timing.workers: timing.seconds for timing in loader.timings}
    if used in measured:
        return measured[used]
    if used and (points := [(w, s) for w, s in measured.items() if w]):
        seconds, constant = fitted(points)
        return seconds / used + constant
    given = loader.shares.units if loader.shares else {}
    pools = {name: with_fields(pool, shared=pool.shared or name == CORES) for name, pool in loader.pools.items()}
    work = loader_work(with_fields(loader, pools=pools))  # a worker takes an item through all stages on cores
    units = (max(1, used) if each.pool == CORES else given.get(each.stages[0], 1) for each in work)
    return float(max(each.seconds_with(count) for each, count in zip(work, units, strict=True)))


def fitted(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The a and d, neither below 0, of a / c + d by least squares through points (c, seconds)."""
    each = [(1.0 / units, seconds) for units, seconds in points]
    x_mean, y_mean = (sum(values) / len(each) for values in zip(*each, strict=True))
    spread = sum((x - x_mean) ** 2 for x, _ in each)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in each) / spread if spread else y_mean / x_mean
    slope = min(max(slope, 0.0), y_mean / x_mean)
    return slope, y_mean - slope * x_mean


class LoaderReads(NamedTuple):
    """Samples that the busiest node loads in a step, and its ranks that load."""

    each_rank: int  # where every rank loads those of its groups
    once: int  # where one loader feeds all ranks of the node
    ranks: int


def loader_reads(plan: Plan, number: int) -> LoaderReads:
    """The samples that nodes load in a step of a plan."""
    feeding = {edge.source for edge in plan.edges}
    loads, once, ranks = Counter[int](), Counter[int](), dict[int, set[int]]()
    for micro_batch in plan.steps[number].micro_batches:
        for a in assignments(plan, micro_batch):
            if a.module not in feeding and a.items:
                for rank in plan.groups[a.group].ranks:
                    ranks.setdefault(node_of_rank(plan.uses.cluster, rank), set()).add(rank)
                of_nodes = Counter(node_of_rank(plan.uses.cluster, rank) for rank in plan.groups[a.group].ranks)
                for node, count in of_nodes.items():
                    loads[node] += count * len(a.items)
                    once[node] += len(a.items)
    return LoaderReads(max(loads.values()), max(once.values()), max(map(len, ranks.values()))) if loads else IDLE


IDLE = LoaderReads(0, 0, 1)


def loading_seconds(loader: LoaderFile, settings: LoaderSettings, reads: LoaderReads) -> float:
    """Seconds in which the busiest node has loaded its samples of a step."""
    return reads.each_rank * node_item_seconds(loader, settings.workers, reads.ranks)


def node_item_seconds(loader: LoaderFile, workers: int, ranks: int) -> float:
    """Seconds of an item on a node whose ranks have so many workers each; 0: ranks load by themselves, at once."""
    if workers:
        return item_seconds(loader, workers * ranks)
    cores = loader.pools[CORES].units if CORES in loader.pools else 1
    return item_seconds(loader, 0) / min(ranks, cores)


def with_loading(plan: Plan, number: int, trained: float) -> float:
    """Seconds of a step that takes `trained` seconds without what its loader needs."""
    loader, settings = plan.uses.loader, plan.loader
    if loader is None or settings is None:
        return trained
    loading = loading_seconds(loader, settings, loader_reads(plan, number))
    return max(trained, loading) if settings.workers and beside_training(plan) else trained + loading


def beside_training(plan: Plan) -> bool:
    """Whether workers run beside what trains: on other cores than those that train."""
    return all(device.kind != "cpu" for device in plan.uses.devices.values())


def least_loading(plan: Plan, number: int) -> float:
    """Seconds that no loader of a step is quicker than: each sample once, on all cores of every node."""
    loader = plan.uses.loader
    assert loader, "only plans with a loader are bounded"
    nodes = 1 + node_of_rank(plan.uses.cluster, plan.size - 1)
    feeding = {edge.source for edge in plan.edges}
    step = plan.steps[number].micro_batches
    placed = (a for micro_batch in step for a in assignments(plan, micro_batch) if a.module not in feeding)
    samples = len({item for a in placed for item in a.items})
    cores = loader.pools[CORES].units if CORES in loader.pools else 1
    quickest = min(item_seconds(loader, workers) for workers in range(1, cores + 1))
    return samples / nodes * min(quickest, item_seconds(loader, 0) / cores)
