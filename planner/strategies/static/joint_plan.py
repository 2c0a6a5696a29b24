"""Several modules, each with the layout that the job fixes for it, as one plan on the same ranks.

Samples are assigned as those of a single module. Every other item is computed in the first micro-batch that reads it,
assigned longest first to the least loaded replica of its module, wherever its reader is.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.costs import Pricing
from planner.errors import InputError
from planner.layouts import layout_problem
from planner.plan.legal.plan_laws import require_legal
from planner.plan.mesh.synchronisation import reduces_each_micro_batch
from planner.plan.plan_file import Edge, Group, ItemEntry, Layout, MicroBatch, Plan, SharedDeviceItems
from planner.specs.base import with_fields
from planner.specs.hardware.rank_kinds import rank_kinds
from planner.specs.inputs import Inputs
from planner.specs.workload.items import Size, item_tokens, part_lengths
from planner.specs.workload.samples import SampleBatch
from planner.strategies.plan_drafts import draft_plan, plan_uses
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.packed_modules import packs_samples
from planner.strategies.static.sample_assignment import packed_micro_batches
from planner.strategies.static.static_plan import assign_items, item_line, replica_groups

MicroBatchOf = dict[int, int]  # item → micro-batch


def unsupported_together(inputs: Inputs) -> str | None:
    """The reason why the modules of a job cannot be planned together, and the fix after ` | `; None when they can."""
    known = {inputs.module, *inputs.batches[0].streams}
    others = " and ".join(f"`{name}`" for name in inputs.model.modules if name not in known)
    if others:
        return f"the job does not define the items of {others} | give workload.streams and fix.layouts, or a plan"
    if len(rank_kinds(inputs.cluster)) > 1:
        return "a static layout needs ranks of one kind | give a plan"
    return None


def plan_together(inputs: Inputs, runs: bool = True) -> Plan:
    """The unpriced plan. Raises InputError when a layout's degrees do not divide evenly, or, if it is to run, the batch
    does not divide over that of the samples; and Infeasible where a sample is more than a rank may hold.
    """
    each, packed = {name: inputs_of_module(inputs, name) for name in inputs.model.modules}, packs_samples(inputs)
    layouts = {name: fixed_layout(one, runs and name == inputs.module and not packed) for name, one in each.items()}
    used = plan_uses(inputs, layouts, ())
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    assigned = packed_by_group if packed else longest_first_by_group
    micro_batches = assigned(pricing, inputs, layouts)
    sharded = any(map(reduces_each_micro_batch, layouts.values()))
    job = with_fields(inputs.job, strategy="by_hand", sync="micro_batch" if sharded else "step")
    plan = draft_plan(
        replace(inputs, job=job),
        used,
        layouts,
        module_groups(layouts),
        nonempty_micro_batches(micro_batches, layouts[inputs.module]),
    )
    plan = with_fields(plan, edges=plan_edges(inputs, layouts))
    require_legal(plan, str(inputs.sources["job"]))
    return plan


def packed_by_group(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> list[MicroBatch]:
    """Micro-batches of samples that are packed to the job's limits."""
    return [
        {name: items_by_group(name, cells) for name, cells in each.items() if name == inputs.module or any(cells)}
        for each in packed_micro_batches(pricing, inputs, layouts)
    ]


def longest_first_by_group(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> list[MicroBatch]:
    """Micro-batches of as many samples as their layout says, items of other modules where somebody reads them first."""
    samples = assign_items(pricing, inputs, layouts[inputs.module], layout_problem(inputs).trained)
    micro_batches: list[MicroBatch] = [
        {inputs.module: items_by_group(inputs.module, [cells[number] for cells in samples])}
        for number in range(len(samples[0]))
    ]
    at = {
        inputs.module: {
            item: micro_batch for cells in samples for micro_batch, items in enumerate(cells) for item in items
        }
    }
    for name, sizes in inputs.batches[0].streams.items():  # each behind those that read it
        at[name] = first_read(inputs.batches[0], name, at)
        for micro_batch, cells in enumerate(
            assign_stream_items(pricing, layouts[name], name, sizes, at[name], len(micro_batches))
        ):
            micro_batches[micro_batch] |= {name: items_by_group(name, cells)} if any(cells) else {}
    return micro_batches


def nonempty_micro_batches(micro_batches: Sequence[MicroBatch], layout: Layout) -> tuple[MicroBatch, ...]:
    """The micro-batches without empty ones, which interleaving keeps."""
    return tuple(micro_batch for micro_batch in micro_batches if any(micro_batch.values()) or layout.vpp > 1)


def inputs_of_module(inputs: Inputs, name: str) -> Inputs:
    """The job restricted to one module, whose layout it fixes. Raises InputError where it fixes none."""
    if name not in inputs.job.fix.layouts:
        where = f"{inputs.sources['job']} (fix.layouts)"
        fix = f"fix one for each module, as {name}: {{dp: {inputs.cluster.size}}}, or give a plan"
        raise InputError(f"the job fixes no layout of `{name}`", where=where, fix=fix)
    batch = inputs.batches[0]
    sizes = batch.items if name == inputs.module else {i: item_tokens(size) for i, size in batch.streams[name].items()}
    return replace(
        inputs, module=name, batches=(SampleBatch(sizes or {0: inputs.model.modules[name].tokens_per_output}, ()),)
    )


def first_read(batch: SampleBatch, name: str, at: dict[str, MicroBatchOf]) -> MicroBatchOf:
    """Item of a module → the first micro-batch in which it is read."""
    found: MicroBatchOf = {}
    for target, feeds in batch.feeds[name].items():
        for item, readers in feeds.items():
            found[item] = min(found.get(item, at[target][readers[0]]), *(at[target][reader] for reader in readers))
    return found


def assign_stream_items(
    pricing: Pricing, layout: Layout, name: str, sizes: dict[int, Size], at: MicroBatchOf, count: int
) -> list[list[list[int]]]:
    """By micro-batch, the items on each replica: assigned to the least loaded one so far, or within the micro-batch
    where ZeRO-3 synchronises replicas in each.
    """
    line, replica_numbers = item_line(pricing, name, layout), range(layout.dp * layout.replica)
    loads = {item: sum(map(line.item_seconds, part_lengths(size))) for item, size in sizes.items()}
    longest_first = sorted(sizes, key=lambda item: (-loads[item], item))
    load, found = [0.0 for _ in replica_numbers], []
    for micro_batch in range(count):
        load = [0.0 for _ in replica_numbers] if layout.zero == 3 else load
        cells = [list[int]() for _ in replica_numbers]
        for item in (item for item in longest_first if at[item] == micro_batch):
            replica = min(replica_numbers, key=lambda each: (load[each], each))
            load[replica] += loads[item]
            cells[replica].append(item)
        found.append(cells)
    return found


def items_by_group(name: str, cells: Sequence[Sequence[int]]) -> dict[str, tuple[ItemEntry, ...] | SharedDeviceItems]:
    """Items of a micro-batch by group, one group per replica."""
    return {f"{name}.dp{number}": tuple(sorted(items)) for number, items in enumerate(cells) if items}


def module_groups(layouts: dict[str, Layout]) -> dict[str, Group]:
    """The groups of all modules, named by module and replica."""
    return {
        f"{name}.{group}": each for name, layout in layouts.items() for group, each in replica_groups(layout).items()
    }


def plan_edges(inputs: Inputs, layouts: dict[str, Layout]) -> tuple[Edge, ...]:
    """The edges of the model, resharded where the target uses a ring."""
    return tuple(
        Edge(
            source=edge.source,
            target=edge.target,
            by=edge.by,
            reshard="zigzag" if layouts[edge.target].default_split.ring > 1 else "contiguous",
        )
        for edge in inputs.model.edges
    )
