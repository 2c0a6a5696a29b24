"""What samples need of each module, and what its replicas may hold: the problem of packing them to a job's limits.

A pack is what one replica works on in one micro-batch. Items of encoders stay beside their samples: replicas of all
modules are paired in lanes, which are as many as divide the replicas of each, and a sample and all that it reads are in
one lane.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from planner import files
from planner.costs import Pricing
from planner.errors import InputError
from planner.plan.plan_file import Layout
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism
from planner.specs.workload.items import UNITS_PER_TOKEN, Size, input_count, part_lengths
from planner.strategies.assignment.module_items import item_line


@dataclass(frozen=True, slots=True)
class PackedModule:
    """One module: its replicas, and what its items are."""

    name: str
    unit: str  # of its inputs: tokens, patches, frames
    replicas: int
    ranks: int  # of a replica, over which inputs are sharded
    budget: int | None  # inputs that a replica may hold in one micro-batch; None: as many as come
    inputs: dict[int, int]  # item → inputs
    seconds: dict[int, float]  # item → seconds of both passes on a replica
    samples: dict[int, tuple[int, ...]]  # item → samples that read it, themselves or over other modules


@dataclass(frozen=True, slots=True)
class PackingOfSamples:
    """The samples of a batch, with what they need of each module in a lane."""

    modules: tuple[PackedModule, ...]  # that of the samples first
    lanes: int
    samples: tuple[int, ...]
    items: dict[int, tuple[tuple[int, ...], ...]]  # sample → items of each module that it reads, longest first
    limited: tuple[int, ...]  # modules, by index, with a budget
    loads: NDArray[np.int64]  # (samples, limited modules)
    budgets: NDArray[np.int64]  # (limited modules,): of all replicas of a lane
    seconds: NDArray[np.float64]  # (samples, modules)

    def in_lane(self, module: PackedModule) -> int:
        """The number of a module's replicas in a lane."""
        return module.replicas // self.lanes


def packs_samples(inputs: Inputs) -> bool:
    """Whether samples are packed to what the job lets a rank hold in a micro-batch. Not so where it only caps tokens,
    and says how many samples a micro-batch has, or has one module alone, whose layout says it.

    Raises InputError where it says both.
    """
    fixed = (inputs.job.fix.layouts.get(inputs.module, Parallelism()), inputs.job.layout)
    several = max(each.micro_batch or 1 for each in fixed)
    if inputs.job.limits.inputs_per_rank and several > 1:
        message = f"a pack has as many samples as find room, and the job fixes a micro_batch of {several}"
        route = ("fix", "layouts", inputs.module) if (fixed[0].micro_batch or 1) > 1 else ("layout",)
        where = files.place(inputs.file, *route, "micro_batch")
        raise InputError(message, where=where, fix="leave micro_batch out, or limits.inputs_per_rank")
    capped = inputs.job.limits.tokens_per_rank is not None and len(inputs.model.modules) > 1
    return bool(inputs.job.limits.inputs_per_rank) or (capped and several == 1)


def packing_of_samples(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> PackingOfSamples:
    """The problem of a job's first batch, where every module has the layout that the job fixes."""
    modules = packed_modules(pricing, inputs, layouts)
    samples = tuple(inputs.batches[0].items)
    place_of = {sample: place for place, sample in enumerate(samples)}
    limited = tuple(at for at, module in enumerate(modules) if module.budget is not None)
    loads, seconds = np.zeros((len(samples), len(modules)), dtype=np.int64), np.zeros((len(samples), len(modules)))
    items: dict[int, list[list[int]]] = {sample: [[] for _ in modules] for sample in samples}
    for at, module in enumerate(modules):
        for item in sorted(module.inputs, key=lambda each: (-module.seconds[each], each)):
            for sample in module.samples[item]:
                items[sample][at].append(item)
                loads[place_of[sample], at] += module.inputs[item]
                seconds[place_of[sample], at] += module.seconds[item]
    lanes = gcd(*(module.replicas for module in modules))
    budgets = [(modules[at].budget or 0) * (modules[at].replicas // lanes) for at in limited]
    return PackingOfSamples(
        modules=modules,
        lanes=lanes,
        samples=samples,
        items={sample: tuple(map(tuple, each)) for sample, each in items.items()},
        limited=limited,
        loads=np.ascontiguousarray(loads[:, limited]),
        budgets=np.array(budgets, dtype=np.int64),
        seconds=seconds,
    )


def packed_modules(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> tuple[PackedModule, ...]:
    """All modules, that of the samples first, then each behind those that read it."""
    batch = inputs.batches[0]
    sizes: dict[str, dict[int, Size]] = {inputs.module: dict(batch.items), **batch.streams}
    samples: dict[str, dict[int, tuple[int, ...]]] = {inputs.module: {item: (item,) for item in batch.items}}
    for name, feeds in batch.feeds.items():
        read: dict[int, set[int]] = {item: set() for item in batch.streams[name]}
        for target, readers_of in feeds.items():
            for item, readers in readers_of.items():
                read[item].update(*(samples[target][reader] for reader in readers))
        samples[name] = {item: tuple(sorted(found)) for item, found in read.items()}
    return tuple(packed_module(pricing, inputs, layouts[name], name, sizes[name], samples[name]) for name in sizes)


def packed_module(
    pricing: Pricing,
    inputs: Inputs,
    layout: Layout,
    name: str,
    sizes: dict[int, Size],
    samples: dict[int, tuple[int, ...]],
) -> PackedModule:
    """One module with its items."""
    spec, line, ranks = inputs.model.modules[name], item_line(pricing, name, layout), layout.tp * layout.cp
    of_size = {size: sum(map(line.item_seconds, part_lengths(size))) for size in set(sizes.values())}
    limit = inputs.job.limits.inputs_of(name, UNITS_PER_TOKEN[spec.input_unit])
    return PackedModule(
        name=name,
        unit=spec.input_unit,
        replicas=layout.dp * layout.replica,
        ranks=ranks,
        budget=None if limit is None else limit * ranks,
        inputs={item: input_count(spec, size) for item, size in sizes.items()},
        seconds={item: of_size[size] for item, size in sizes.items()},
        samples=samples,
    )
