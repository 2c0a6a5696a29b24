"""The layouts that a job fixes for its modules, each on its ranks: those that it names, those of the first pipeline
stage of whoever reads the module's outputs, or all.
"""

from collections.abc import Mapping
from dataclasses import replace

from planner.errors import InputError
from planner.plan.descriptions import reorders_ranks
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.specs.base import FirstStage, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import DEFAULT_RANK_ORDER, Parallelism
from planner.specs.workload.items import item_tokens
from planner.specs.workload.samples import SampleBatch
from planner.strategies.static.fixed_layout import fixed_layout

Layouts = Mapping[str, Layout]


def placed_layouts(inputs: Inputs, runs: bool, decided: Layouts | None = None) -> dict[str, Layout]:
    """The layout of each module, of some as it is `decided` already. Raises InputError where one is missing or cannot
    be; if the plan is to run, also where the batch does not divide over the layout of the samples.
    """
    layouts: dict[str, Layout] = {}
    for name in readers_first(inputs):
        if decided and name in decided:
            layouts[name] = decided[name]
            continue
        one = inputs_of_module(inputs, name)
        fixed, ranks = one.job.fix.layouts.get(name, Parallelism()), module_ranks(one, name, layouts)
        if isinstance(fixed.ranks, FirstStage):
            one = beside_reader(one, first_reader(inputs, name, layouts))
        layout = in_usual_order(fixed_layout(one, runs and name == inputs.module, ranks), fixed)
        inserted = inputs.model.targets(name) and not fixed.schedule  # into the order of passes of who reads it
        layouts[name] = with_fields(layout, schedule=None) if inserted else layout
    return {name: layouts[name] for name in inputs.model.modules}


def readers_first(inputs: Inputs) -> list[str]:
    """The modules, each behind those that read it; a model's edges have no cycle."""
    found: list[str] = []
    while len(found) < len(inputs.model.modules):
        found += [
            name for name in inputs.model.modules if name not in found and {*inputs.model.targets(name)} <= {*found}
        ]
    return found


def inputs_of_module(inputs: Inputs, name: str) -> Inputs:
    """The job restricted to one module, whose layout it fixes. Raises InputError where it fixes none; a module that is
    alone has what `layout` says.
    """
    if len(inputs.model.modules) == 1:
        return inputs
    if name not in inputs.job.fix.layouts:
        where = f"{inputs.file} (fix.layouts)"
        fix = f"fix one for each module, as {name}: {{dp: {inputs.cluster.size}}}, or give a plan"
        raise InputError(f"the job fixes no layout of `{name}`", where=where, fix=fix)
    batch = inputs.batches[0]
    sizes = batch.items if name == inputs.module else {i: item_tokens(size) for i, size in batch.streams[name].items()}
    return replace(
        inputs, module=name, batches=(SampleBatch(sizes or {0: inputs.model.modules[name].tokens_per_output}, ()),)
    )


def module_ranks(inputs: Inputs, name: str, layouts: Layouts) -> Ranks:
    """The ranks of a module: as its layout says, else all. Raises InputError for ranks that there are not."""
    every, chosen = Ranks(range(inputs.cluster.size)), inputs.job.fix.layouts.get(name, Parallelism()).ranks
    if isinstance(chosen, FirstStage):
        return stage_ranks(first_reader(inputs, name, layouts), 0)
    if not isinstance(chosen, Ranks):
        return every
    if chosen[-1] >= inputs.cluster.size:
        message = f"there is no rank {chosen[-1]} in {inputs.cluster.name}"
        raise InputError(message, where=ranks_place(inputs, name), fix=f"ranks of {every}, or a larger cluster")
    return chosen


def first_reader(inputs: Inputs, name: str, layouts: Layouts) -> Layout:
    """The layout on whose first stage a module is. Raises InputError where none reads it, or where the first stages of
    several are on different ranks.
    """
    stages = {reader: stage_ranks(layouts[reader], 0) for reader in inputs.model.targets(name)}
    if not stages:
        message = f"first_stage is that of the module that reads `{name}`, and none does"
        raise InputError(message, where=ranks_place(inputs, name), fix="name ranks, as 0-3, or leave it out for all")
    if len({*stages.values()}) > 1:
        told = " and ".join(f"`{reader}` on ranks {ranks}" for reader, ranks in stages.items())
        message = f"`{name}` is read by the first stages of {told}"
        raise InputError(message, where=ranks_place(inputs, name), fix="name the ranks, as 0-3")
    return layouts[next(iter(stages))]


def beside_reader(inputs: Inputs, reader: Layout) -> Inputs:
    """The job whose module has the tp and the order of ranks of its reader, on whose first stage it is, unless it fixes
    others.
    """
    fix, name = inputs.job.fix, inputs.module
    fixed = fix.layouts[name]
    tp = fixed.tp or inputs.job.layout.tp or reader.tp
    order = fixed.rank_order or inputs.job.layout.rank_order or (reader.rank_order if tp == reader.tp else None)
    layouts = {**fix.layouts, name: with_fields(fixed, tp=tp, rank_order=order)}
    return replace(inputs, job=with_fields(inputs.job, fix=with_fields(fix, layouts=layouts)))


def in_usual_order(layout: Layout, fixed: Parallelism) -> Layout:
    """The layout without an order of ranks that its reader has and that makes no difference for its own degrees."""
    if fixed.rank_order or reorders_ranks(layout):
        return layout
    return with_fields(layout, rank_order=DEFAULT_RANK_ORDER)


def ranks_place(inputs: Inputs, name: str) -> str:
    """The place of a module's ranks in its job."""
    return f"{inputs.file} (fix.layouts.{name}.ranks)"
