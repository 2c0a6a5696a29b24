"""Whether the offloading of a plan hides behind its compute; its time is priced as if it did."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from planner.costs import Pricing
from planner.costs.memory import Offloading
from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.plan.plan_file import ItemEntry, MicroBatch, OffloadedItem, Plan
from planner.plan.task import Task
from planner.plan.tasks.task_table import TaskTable
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.workload.items import part_lengths


def require_hidden_offload(plan: Plan, number: int, pricing: Pricing, tasks: TaskTable) -> None:
    """Raise InputError for the first item of a step whose offloading would take longer than its compute."""
    offloaded = np.array([bool(work.offload) for work in tasks.works], dtype=np.bool_)[tasks.work]
    places = np.flatnonzero(offloaded & tasks.column(lambda kind: kind.phase == "F", np.bool_))
    first, _ = tasks.alike(
        places,
        lambda kind: task_offloading(plan, pricing, kind),
        lambda work: (work.sizes, work.offload),
    )
    for task in map(tasks.task, sorted(first)):
        rank = task_offloading(plan, pricing, task)
        for item, size, ratio in zip(task.items, task.sizes, task.offload, strict=True):
            most = rank.largest_ratio(size)
            if ratio > most:
                parts = plan.layouts[task.module].offloaded_parts
                asked, fix = (f"{flow_text(parts)}, {most:.0%} of which can", "fewer kinds") if parts else ("", "")
                raise InputError(
                    f"offload would not hide: item {item} asks for {asked or f'{ratio:g}, at most {most:g} here'}",
                    where=f"steps[{number}].micro_batches[{task.micro_batch}]",
                    fix=f"offload: {fix or f'{most:g}, or less'}",
                )


def hidden_offload(plan: Plan, pricing: Pricing, module: str) -> float:
    """The largest share of every item of a module whose copies hide on each of its stages: that of the shortest."""
    shortest = min(min(part_lengths(size)) for size in plan.uses.items[module].values())
    return min(rank.largest_ratio(shortest) for rank in stages_offloading(plan, pricing, module))


def hidden_shares(plan: Plan, pricing: Pricing, module: str) -> dict[int, float]:
    """Item of a module → the largest share of it whose copies hide on each of its stages."""
    chunks = stages_offloading(plan, pricing, module)
    lengths = {item: min(part_lengths(size)) for item, size in plan.uses.items[module].items()}  # with less, less hides
    most = {length: min(rank.largest_ratio(length) for rank in chunks) for length in {*lengths.values()}}
    return {item: most[length] for item, length in lengths.items()}


def stages_offloading(plan: Plan, pricing: Pricing, module: str) -> list[Offloading]:
    """Offloading from the ranks of each stage of a module."""
    layout = plan.layouts[module]
    every = layout.stages or (Layers(range(plan.uses.models[module].layers)),)
    return [rank_offloading(plan, pricing, module, layout.ranks, layers) for layers in every]


def with_hidden_offload(draft: Plan, pricing: Pricing) -> Plan:
    """The draft of one step of several modules, with less offloaded of the items of which as much as their layout says
    would not hide. Of kinds of activations all is.
    """
    (step,) = draft.steps
    shares = {name: layout.offload_share for name, layout in draft.layouts.items() if not layout.offloaded_parts}
    most = {name: hidden_shares(draft, pricing, name) for name, share in shares.items() if share}
    if not most:
        return draft

    def entry(module: str, item: int) -> ItemEntry:
        share = most[module][item] if module in most else 1.0
        return OffloadedItem(item=item, offload=share) if share < shares.get(module, 0.0) else item

    drafted = cast("tuple[Mapping[str, Mapping[str, Sequence[int]]], ...]", step.micro_batches)
    micro_batches: tuple[MicroBatch, ...] = tuple(
        {
            name: {group: tuple(entry(name, item) for item in items) for group, items in of_groups.items()}
            for name, of_groups in micro_batch.items()
        }
        for micro_batch in drafted
    )
    return with_fields(draft, steps=(with_fields(step, micro_batches=micro_batches),))


def task_offloading(plan: Plan, pricing: Pricing, task: Task) -> Offloading:
    """Offloading from the ranks of a task."""
    return rank_offloading(plan, pricing, task.module, task.ranks, task.layers)


def rank_offloading(plan: Plan, pricing: Pricing, module: str, ranks: Ranks, layers: Layers) -> Offloading:
    """Offloading from ranks that have these layers; where they differ, over the slowest link to a host."""
    devices = plan.uses.devices
    kind = min(pricing.device_kinds(ranks), key=lambda kind: devices[kind].host_gb_per_s or 0.0)
    return pricing.offloading(module, kind, layers)
