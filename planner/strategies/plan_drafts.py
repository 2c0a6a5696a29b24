"""What strategies share: data-parallel layouts, and decisions as an unpriced plan with everything that it uses."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import planner
from planner import files
from planner.costs import PackingProblem, Pricing, SharedPrices, price_table, split_degree
from planner.packing import PackedGroup
from planner.plan.gradient_flow import gradient_flows
from planner.plan.join_plans import joined_left_out
from planner.plan.plan_file import (
    NO_OUTCOME,
    NO_PREDICTION,
    Group,
    ItemEntry,
    Layout,
    MicroBatch,
    OffloadedItem,
    Plan,
    PlanInputs,
    PlanOrigin,
    PlanTask,
    SourceFile,
    Step,
    group_name,
)
from planner.specs import library
from planner.specs.base import Indices, Ranks
from planner.specs.inputs import Inputs
from planner.specs.layers import Module
from planner.specs.parallelism import decided_fields
from planner.specs.workload.items import Size
from planner.specs.workload.samples import SampleBatch
from planner.strategies.table import decided_by

STATE_FIELDS = (
    "zero",
    "recompute",
    "dtype",
    "gradients",
)  # fields of `layout` that apply where groups change with every micro-batch


def unsupported_by_groups(inputs: Inputs, name: str) -> str | None:
    """The reason why groups that change with every micro-batch cannot plan this job alone: it fixes a layout that such
    groups cannot keep; None where they can.
    """
    if not any(map(decided_fields, inputs.job.fix.layouts.values())):
        return None
    fix = "say zero and recompute under `layout`; for tp, cp or pp, strategy: parallel_search"
    return f"groups of {name} change with every micro-batch: fix.layouts has no place in it | {fix}"


def zero_of_groups(inputs: Inputs) -> int:
    """The ZeRO stage of the module of the samples in groups: 3 where the job gives none."""
    several = len(inputs.model.modules) > 1
    zero = inputs.fixed_parallelism.zero if several else inputs.job.layout.zero
    return 3 if zero is None else zero


def data_parallel_layouts(inputs: Inputs) -> dict[str, Layout]:
    """The workload's module data-parallel over all ranks, its states sharded as the job says; under ZeRO-3 where it
    does not.
    """
    size = inputs.cluster.size
    states: dict[str, Any] = {
        name: value for name, value in decided_fields(inputs.fixed_parallelism).items() if name in STATE_FIELDS
    }
    layout = Layout(ranks=Ranks(range(size)), dp=size, **{"zero": inputs.job.zero, **states})
    return {inputs.module: layout}


def pricing_of_draft(
    inputs: Inputs, used: PlanInputs, layouts: dict[str, Layout], shared: SharedPrices | None = None
) -> Pricing:
    """What prices items of modules with these layouts, of all or some of the model's, before there is a plan; `shared`:
    with other plans of the job.
    """
    edges = [edge for edge in inputs.model.edges if {edge.source, edge.target} <= {*layouts}]
    flows, shared = gradient_flows(used.models, edges), SharedPrices() if shared is None else shared
    fixed = (used.models, layouts, used.cluster, used.prices, used.devices)
    return Pricing(*fixed, flows=flows, repeated=used.repeated, shared=shared)


def plan_uses(inputs: Inputs, layouts: dict[str, Layout], degrees: tuple[int, ...]) -> PlanInputs:
    """Everything that makes a plan self-contained: models, cluster, items, prices and sources."""
    items: dict[str, dict[int, Size]] = {name: {} for name in layouts}
    for batch in inputs.batches:
        for name in layouts:
            items[name] |= batch.items if name == inputs.module else batch.streams[name]
    return PlanInputs(
        models={name: inputs.model.modules[name] for name in layouts},
        cluster=inputs.cluster,
        devices=inputs.devices,
        items=items,
        feeds={name: read for batch in inputs.batches for name, read in item_readers(batch, layouts)},
        dropped=tuple(sample for batch in inputs.batches for sample in batch.dropped),
        left_out=joined_left_out((batch.left_out for batch in inputs.batches), layouts),
        degrees=degrees,
        limits=inputs.job.limits,
        fix=inputs.job.fix,
        repeated=inputs.job.workload.repeated,
        software=inputs.software,
        tasks={name: plan_task(inputs, name) for name in inputs.model.tasks},
        loss=inputs.job.loss,
        prices=price_table(inputs, layouts),
        sources={role: source_file(path, inputs.sources["job"]) for role, path in inputs.sources.items()},
    )


def plan_task(inputs: Inputs, name: str) -> PlanTask:
    """A task with its samples in all batches."""
    task = inputs.model.tasks[name]
    samples = Indices(sorted(sample for batch in inputs.batches for sample in batch.tasks[name]))
    return PlanTask(modules=task.modules, loss=task.loss, weight=task.weight, samples=samples)


def item_readers(batch: SampleBatch, layouts: dict[str, Layout]) -> Iterator[tuple[str, dict[int, Any]]]:
    """The readers of items, by module; by edge for a module that feeds several."""
    for name in (name for name in batch.feeds if name in layouts):
        for target, readers in batch.feeds[name].items():
            key = name if len(batch.feeds[name]) == 1 else f"{name}>{target}"
            yield key, {item: of if len(of) > 1 else of[0] for item, of in readers.items()}


def source_file(path: Path, job: Path) -> SourceFile:
    """An input's digest, and its path, which does not depend on the working folder.

    Shipped files are under `profiles/`; any other path is relative to the job's folder, or absolute for a shipped job.
    """
    target, base, shipped = path.resolve(), job.resolve().parent, library.shipped_folder().resolve()
    if target.is_relative_to(shipped):
        text = f"profiles/{target.relative_to(shipped).as_posix()}"
    else:
        text = target.as_posix() if base.is_relative_to(shipped) else Path(os.path.relpath(target, base)).as_posix()
    return SourceFile(path=text, sha256=files.digest(path))


def plan_micro_batch(
    micro_batch: tuple[PackedGroup, ...], problem: PackingProblem, module: Module, groups: dict[str, Group]
) -> MicroBatch:
    """A packed micro-batch as in a plan file; its groups are added to `groups`."""
    named: MicroBatch = {}
    for group in micro_batch:
        degree = problem.shapes[group.shape].degree
        ranks = Ranks(range(group.first_rank, group.first_rank + degree))
        name = group_name(ranks)
        groups[name] = Group(ranks=ranks, split=split_degree(module, degree))  # type: ignore[arg-type]
        named[name] = tuple(plan_entry(item, group.shape, problem) for item in group.items)
    return named


def plan_entry(item: int, shape: int, problem: PackingProblem) -> ItemEntry:
    """An item, with the share of its activations offloaded on a group of this shape."""
    offload = problem.offload_ratio(problem.sizes[item], shape)
    return OffloadedItem(item=item, offload=offload) if offload else item


def draft_plan(
    inputs: Inputs,
    used: PlanInputs,
    layouts: dict[str, Layout],
    groups: dict[str, Group],
    micro_batches: tuple[MicroBatch, ...],
) -> Plan:
    """The decisions for one batch as an unpriced plan."""
    return Plan(
        format=Plan.FORMAT,
        name=inputs.job.name,
        made=PlanOrigin(
            by=f"planner {planner.__version__}",
            strategy=inputs.job.strategy,
            decided=decided_by(inputs.job.strategy, len(inputs.model.modules)),
            seed=inputs.seed,
            effort=inputs.effort,
            first_row=inputs.first_row,
        ),
        uses=used,
        outcome=NO_OUTCOME,
        prediction=NO_PREDICTION,
        ranks=inputs.cluster.ranks,
        layouts=layouts,
        groups=dict(sorted(groups.items(), key=lambda entry: (entry[1].ranks[0], -len(entry[1].ranks)))),
        steps=(Step(sync=inputs.job.sync, micro_batches=micro_batches),),
    )
