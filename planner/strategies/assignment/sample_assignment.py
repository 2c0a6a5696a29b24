"""Samples packed to the limits of a job: which replicas work on which items in which micro-batch.

Micro-batches are as few as packs can be found; among packings with as many, that is taken whose encoders and LLM have
the most even seconds over packs. Packs of like seconds are in one micro-batch, where ranks may wait for each other, and
each goes to the lane that had least so far.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from planner import files
from planner.costs import Pricing
from planner.errors import Infeasible
from planner.packing import PackedLoads, even_packs, mean_shares, pack_samples
from planner.plan.plan_file import Layout
from planner.specs.inputs import Inputs
from planner.specs.workload.sample_batches import has_samples
from planner.strategies.assignment.packed_modules import PackedModule, PackingOfSamples, packing_of_samples

ModuleCells = list[list[int]]  # by replica, the items of a micro-batch


class Lane:
    """Replicas of all modules in one micro-batch, with what they hold of their budgets."""

    def __init__(self, packing: PackingOfSamples) -> None:
        self.packing = packing
        self.samples: list[int] = []
        counts = [packing.in_lane(module) for module in packing.modules]
        self.cells: list[ModuleCells] = [[[] for _ in range(count)] for count in counts]
        self.held = [[0] * count for count in counts]
        self.seconds = [[0.0] * count for count in counts]
        self.placed: set[tuple[int, int]] = set()  # items that an earlier sample brought

    def put(self, sample: int) -> bool:
        """Put a sample here with all that it reads, each item on the least loaded replica with room for it; False, and
        nothing is put, where one finds no room.
        """
        done: list[tuple[int, int, int]] = []
        for at, items in enumerate(self.packing.items[sample]):
            module = self.packing.modules[at]
            for item in (item for item in items if (at, item) not in self.placed):
                replica = self.least_loaded(at, module, module.inputs[item])
                if replica is None:
                    for each in reversed(done):
                        self.add(*each, sign=-1)
                    return False
                done.append((at, item, replica))
                self.add(at, item, replica)
        for at, item, replica in done:
            self.cells[at][replica].append(item)
            self.placed.add((at, item))
        self.samples.append(sample)
        return True

    def least_loaded(self, at: int, module: PackedModule, amount: int) -> int | None:
        """The replica with least seconds so far that has room for so many inputs."""
        held, most = self.held[at], module.budget
        able = [number for number in range(len(held)) if most is None or held[number] + amount <= most]
        return min(able, key=lambda number: (self.seconds[at][number], number), default=None)

    def add(self, at: int, item: int, replica: int, sign: int = 1) -> None:
        """Count an item to a replica, or take it off."""
        module = self.packing.modules[at]
        self.held[at][replica] += sign * module.inputs[item]
        self.seconds[at][replica] += sign * module.seconds[item]

    @property
    def total_seconds(self) -> float:
        return sum(map(sum, self.seconds))


def packed_micro_batches(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> list[dict[str, ModuleCells]]:
    """By micro-batch and module, the items of each replica, none above what the job allows a rank.

    Raises Infeasible naming the sample with most of what does not fit.
    """
    packing, layout = packing_of_samples(pricing, inputs, layouts), layouts[inputs.module]
    require_room(packing, inputs)
    fewest = packed_lanes(packing)
    rounds = -(-len(fewest) // packing.lanes)
    rounds = -(-rounds // layout.pp) * layout.pp if layout.vpp > 1 else rounds
    chosen = most_even_lanes(packing, fewest, rounds * packing.lanes)
    return [*cells_by_module(packing, in_order(chosen, rounds, packing))]


def require_room(packing: PackingOfSamples, inputs: Inputs) -> None:
    """Raises Infeasible where a sample finds no room in an empty lane."""
    single = np.array([packing.modules[at].budget for at in packing.limited], dtype=np.int64)
    doubtful = np.flatnonzero((packing.loads > single).any(axis=1))
    wrong = [int(at) for at in doubtful if not Lane(packing).put(packing.samples[at])]
    if wrong:
        shares = packing.loads[wrong] / packing.budgets
        place, column = np.unravel_index(int(shares.argmax()), shares.shape)
        raise no_room(packing, inputs, wrong[place], int(column), len(wrong) - 1)


def no_room(packing: PackingOfSamples, inputs: Inputs, place: int, column: int, others: int) -> Infeasible:
    """The error for the sample with most, at this place, of a limited module; as many others do not fit either."""
    at, sample = packing.limited[column], packing.samples[place]
    module, load, most = packing.modules[at], int(packing.loads[place, column]), int(packing.budgets[column])
    own = module.name in inputs.job.limits.inputs_per_rank
    route = ("limits", "inputs_per_rank", module.name) if own else ("limits", "tokens_per_rank")
    items = [module.inputs[item] for item in packing.items[sample][at]]
    read = f" in {len(items):,} items of up to {max(items):,}" if len(items) > 1 else ""
    message = f"sample {sample} has {load:,} {module.unit} of `{module.name}`{read}, and a pack may hold {most:,}"
    if packing.in_lane(module) > 1:
        message += f", {module.budget:,} on each of {packing.in_lane(module)} replicas"
    if others:
        message += f" ({others:,} more such)"
    enough = f" to {-(-load // module.ranks)}" if packing.in_lane(module) == 1 else ""
    fix = f"raise {'.'.join(route)}{enough}{dropping_fix(inputs, module)}"
    return Infeasible(message, where=files.place(inputs.file, *route), fix=fix)


def dropping_fix(inputs: Inputs, module: PackedModule) -> str:
    """How the job drops samples with more than a replica may hold; empty: it cannot."""
    if module.name == inputs.module:
        return f", or drop such samples: workload.max_tokens: {module.budget}"
    if has_samples(inputs.job.workload):
        return f", or drop such samples: workload.max_inputs: {{{module.name}: {module.budget}}}"
    return ""


def packed_lanes(packing: PackingOfSamples) -> list[Lane]:
    """As few lanes as are found. Samples that find no replica with room, though the lane had some, are packed again."""
    waiting, found = np.arange(len(packing.samples)), list[Lane]()
    while len(waiting):
        packs = pack_samples(packing.loads[waiting], packing.budgets)
        lanes, without = filled_lanes(packing, waiting, packs, int(packs.max()) + 1)
        found += lanes
        waiting = np.array(without, dtype=np.int64)
    return found


def filled_lanes(
    packing: PackingOfSamples, places: NDArray[np.int64], packs: NDArray[np.int64], count: int
) -> tuple[list[Lane], list[int]]:
    """The lanes of these samples, longest first in each, and the places of samples that found no room."""
    lanes, without = [Lane(packing) for _ in range(count)], []
    longest_first = np.lexsort((places, -packing.seconds[places].sum(axis=1)))
    for at in longest_first.tolist():
        if not lanes[packs[at]].put(packing.samples[places[at]]):
            without.append(int(places[at]))
    return lanes, without


def most_even_lanes(packing: PackingOfSamples, fewest: Sequence[Lane], count: int) -> list[Lane]:
    """So many lanes, with the least squares of seconds of all modules: those packed first, or spread over all."""
    every, place_of = np.arange(len(packing.samples)), {sample: at for at, sample in enumerate(packing.samples)}
    packs = np.zeros(len(every), dtype=np.int64)
    for number, lane in enumerate(fewest):
        packs[[place_of[sample] for sample in lane.samples]] = number
    spread = even_packs(packing.loads, packing.budgets, packing.seconds, count)
    best, least = [*fewest, *(Lane(packing) for _ in range(count - len(fewest)))], squares(packing, packs, count)
    for start in (packs, *(() if spread is None else (spread,))):
        level = PackedLoads(start, packing.loads, packing.seconds, count).level(packing.budgets)
        lanes, without = filled_lanes(packing, every, level, count)
        if not without and squares(packing, level, count) < least:
            best, least = lanes, squares(packing, level, count)
    return best


def squares(packing: PackingOfSamples, packs: NDArray[np.int64], count: int) -> float:
    """The sum of squares of each module's seconds by pack, over their mean."""
    filled = np.zeros((count, len(packing.modules)))
    np.add.at(filled, packs, mean_shares(packing.seconds, count))
    return float((filled**2).sum())


def in_order(lanes: Iterable[Lane], rounds: int, packing: PackingOfSamples) -> list[list[Lane]]:
    """The lanes by micro-batch and place: like ones in one micro-batch, the longest first, each at the place that had
    least so far.
    """
    longest_first = sorted(lanes, key=lambda lane: (-lane.total_seconds, lane.samples[:1]))
    load, found = [0.0] * packing.lanes, list[list[Lane]]()
    for start in range(0, rounds * packing.lanes, packing.lanes):
        places = sorted(range(packing.lanes), key=lambda place: (load[place], place))
        alike = dict(zip(places, longest_first[start : start + packing.lanes], strict=True))
        load = [load[place] + alike[place].total_seconds for place in range(packing.lanes)]
        found.append([alike[place] for place in range(packing.lanes)])
    return found


def cells_by_module(packing: PackingOfSamples, ordered: Iterable[Sequence[Lane]]) -> Iterator[dict[str, ModuleCells]]:
    """Micro-batches with the items of every replica; an item with several readers is where the first of them is."""
    seen: set[tuple[int, int]] = set()
    for lanes in ordered:
        micro_batch: dict[str, ModuleCells] = {module.name: [] for module in packing.modules}
        for lane in lanes:
            for at, module in enumerate(packing.modules):
                for items in lane.cells[at]:
                    own = [item for item in items if (at, item) not in seen]
                    seen.update((at, item) for item in own)
                    micro_batch[module.name].append(own)
        yield micro_batch
