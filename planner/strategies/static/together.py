"""Several modules, each with the layout that the job fixes for it, as one plan on the same ranks.

Samples lie as those of one module do. Every other item is worked on in the first micro-batch in which somebody reads
it, longest first on the replica of its module that has least to do, wherever its reader is.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.costs.pricing import Pricing
from planner.errors import InputError
from planner.plan.legal import require_legal
from planner.plan.model import Edge, Entry, Group, Layout, Plan, Row, Shared
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.items import Size, lengths_of, tokens_of
from planner.specs.kinds import kinds
from planner.specs.lengths import Batch
from planner.strategies.base import draft, uses
from planner.strategies.static.fixed import fixed_layout
from planner.strategies.static.laid import alone, replicas, shared_out
from planner.strategies.static.screen import problem_of

Where = dict[int, int]  # item → micro-batch


def unlaid(inputs: Inputs) -> str | None:
    """Why the modules of a job cannot be laid out together as it says, and what to do; None when they can."""
    if not inputs.job.workload.streams:
        others = " and ".join(f"`{name}`" for name in inputs.model.modules if name != inputs.module)
        return f"the job says nothing of the items of {others} | give workload.streams and fix.layouts, or a plan"
    if len(kinds(inputs.cluster)) > 1:
        return "a static layout is of ranks of one kind | give a plan"
    return None


def laid_together(inputs: Inputs, runs: bool = True) -> Plan:
    """The plan, still unpriced. Raises InputError when a layout does not come out even, nor, if it is to run, does the
    batch over that of the samples.
    """
    each = {name: of_module(inputs, name) for name in inputs.model.modules}
    layouts = {name: fixed_layout(one, runs and name == inputs.module) for name, one in each.items()}
    used = uses(inputs, layouts, ())
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    samples = shared_out(pricing, inputs, layouts[inputs.module], problem_of(inputs).trained)
    rows: list[Row] = [
        {inputs.module: named(inputs.module, [cells[number] for cells in samples])} for number in range(len(samples[0]))
    ]
    at = {inputs.module: {item: row for cells in samples for row, items in enumerate(cells) for item in items}}
    for name, sizes in inputs.batches[0].streams.items():  # each behind those that read it
        at[name] = first_read(inputs.batches[0], name, at)
        for row, cells in enumerate(spread(pricing, layouts[name], name, sizes, at[name], len(rows))):
            rows[row] |= {name: named(name, cells)} if any(cells) else {}
    sharded = any(layout.zero == 3 for layout in layouts.values())
    job = changed(inputs.job, strategy="by_hand", sync="micro_batch" if sharded else "step")
    plan = draft(replace(inputs, job=job), used, layouts, groups_of(layouts), worked(rows, layouts[inputs.module]))
    plan = changed(plan, edges=edges(inputs, layouts))
    require_legal(plan, str(inputs.sources["job"]))
    return plan


def worked(rows: Sequence[Row], layout: Layout) -> tuple[Row, ...]:
    """Micro-batches without the empty ones, which interleaving takes."""
    return tuple(row for row in rows if any(row.values()) or layout.vpp > 1)


def of_module(inputs: Inputs, name: str) -> Inputs:
    """The job as one of a single module, whose layout it fixes. Raises InputError where it fixes none."""
    if name not in inputs.job.fix.layouts:
        where = f"{inputs.sources['job']} (fix.layouts)"
        fix = f"fix one for each module, as {name}: {{dp: {inputs.cluster.size}}}, or give a plan"
        raise InputError(f"the job fixes no layout of `{name}`", where=where, fix=fix)
    batch = inputs.batches[0]
    sizes = batch.items if name == inputs.module else {i: tokens_of(size) for i, size in batch.streams[name].items()}
    return replace(inputs, module=name, batches=(Batch(sizes or {0: inputs.model.modules[name].merged}, ()),))


def first_read(batch: Batch, name: str, at: dict[str, Where]) -> Where:
    """Of each item of a module, the first micro-batch in which somebody reads it."""
    found: Where = {}
    for target, feeds in batch.feeds[name].items():
        for item, readers in feeds.items():
            found[item] = min(found.get(item, at[target][readers[0]]), *(at[target][reader] for reader in readers))
    return found


def spread(
    pricing: Pricing, layout: Layout, name: str, sizes: dict[int, Size], at: Where, count: int
) -> list[list[list[int]]]:
    """Of each micro-batch, the items on each replica: of the one that has least to do up to there, or in it where
    ZeRO-3 lets replicas meet in each.
    """
    line, hands = alone(pricing, name, layout), range(layout.dp * layout.replica)
    loads = {item: sum(map(line.of, lengths_of(size))) for item, size in sizes.items()}
    longest_first = sorted(sizes, key=lambda item: (-loads[item], item))
    busy, found = [0.0 for _ in hands], []
    for row in range(count):
        busy, cells = [0.0 for _ in hands] if layout.zero == 3 else busy, [list[int]() for _ in hands]
        for item in (item for item in longest_first if at[item] == row):
            hand = min(hands, key=lambda each: (busy[each], each))
            busy[hand] += loads[item]
            cells[hand].append(item)
        found.append(cells)
    return found


def named(name: str, cells: Sequence[Sequence[int]]) -> dict[str, tuple[Entry, ...] | Shared]:
    """Items of a micro-batch by group, one for each replica."""
    return {f"{name}.dp{number}": tuple(sorted(items)) for number, items in enumerate(cells) if items}


def groups_of(layouts: dict[str, Layout]) -> dict[str, Group]:
    return {f"{name}.{group}": each for name, layout in layouts.items() for group, each in replicas(layout).items()}


def edges(inputs: Inputs, layouts: dict[str, Layout]) -> tuple[Edge, ...]:
    """Those of the model."""
    return tuple(
        Edge(
            source=edge.source,
            target=edge.target,
            by=edge.by,
            reshard="zigzag" if layouts[edge.target].split.ring > 1 else "contiguous",
        )
        for edge in inputs.model.edges
    )
