"""Recovers a plan's own problem from the plan file alone: the inputs of a strategy for one step. Of one module the job
fixes what its strategy did not decide; of several, all layouts of the plan.
"""

from collections.abc import Iterator
from typing import Any

from planner.costs import pricing_of
from planner.errors import InputError
from planner.plan.descriptions import fixable_layout, layout_text
from planner.plan.plan_file import Layout, Plan, assignments
from planner.solve_job import with_asks_of
from planner.specs.base import FirstStage, RankChoice, Ranks, with_fields
from planner.specs.hardware.profile import Profile, Provenance
from planner.specs.inputs import Inputs
from planner.specs.job import Fix, Job
from planner.specs.model import Model, ModelEdge
from planner.specs.parallelism import Parallelism
from planner.specs.workload.items import part_lengths
from planner.specs.workload.length_sources import LengthsFile, Workload
from planner.specs.workload.samples import ReadersByItem, SampleBatch
from planner.strategies import solving_strategy, strategy_deciding


def require_groups(plan: Plan) -> tuple[str, Layout]:
    """The only module of a plan of groups, which have neither pipeline nor tensor parallelism, and its layout. Raises
    InputError otherwise.
    """
    name, layout = require_solvable(plan)
    if has_static_layout(plan):
        raise InputError(
            "a static layout places no single sequence and no group: its replicas take turns",
            where=f"layouts ({name})",
            fix="`planner why PLAN` for the step, and `planner why-not PLAN KEY=VALUE` for another layout",
        )
    return name, layout


def require_solvable(plan: Plan) -> tuple[str, Layout]:
    """The only module of a plan whose problem a strategy can solve again, and its layout. Raises InputError."""
    ((name, layout),) = plan.layouts.items()
    multipart = [item for item, size in plan.uses.items[name].items() if len(part_lengths(size)) > 1]
    if multipart:
        raise InputError(
            f"strategies place whole sequences, and item {multipart[0]} has several parts",
            where=f"uses.items.{name}.{multipart[0]}",
            fix="ask about a plan whose items have one part each",
        )
    if layout.experts:
        raise InputError(
            "strategies place the experts of all layers alike, and the plan places some differently",
            where=f"layouts.{name}.experts",
            fix="leave `experts` out of the layout",
        )
    if not has_static_layout(plan) and (
        len(layout.recompute_counts(range(plan.uses.models[name].layers))) > 1 or layout.gradients != "float32"
    ):
        raise InputError(
            f"no job can ask for this layout ({layout_text(layout)})",
            where=f"layouts.{name}",
            fix="let all layers recompute the same, and leave `gradients` out",
        )
    return name, layout


def has_static_layout(plan: Plan) -> bool:
    """Whether the plan of one module has a layout that a search of static layouts decides, or would: by its strategy,
    or because it has pipeline or tensor parallelism.
    """
    (layout,) = plan.layouts.values()
    return "layouts" in plan.made.decided or bool(layout.stages) or layout.dp < plan.size


def single_step(plan: Plan, number: int) -> Plan:
    """One step of a plan as a plan of its own. Raises InputError when there is no such step."""
    if not 0 <= number < len(plan.steps):
        raise InputError(f"the plan has no step {number}", where="--step", fix=f"one of 0 to {len(plan.steps) - 1}")
    step = plan.steps[number]
    placed = [a for micro_batch in step.micro_batches for a in assignments(plan, micro_batch)]
    items: dict[str, set[int]] = {name: set() for name in plan.uses.items}
    for a in placed:
        items[a.module].update(a.items)
    groups = {a.group for a in placed}
    sizes_of_step = {
        name: {item: size for item, size in sizes.items() if item in items[name]}
        for name, sizes in plan.uses.items.items()
    }
    fixed = {item: degree for item, degree in plan.uses.fix.items.items() if any(item in of for of in items.values())}
    feeds = {
        edge: {item: readers for item, readers in readers_of.items() if item in items[edge.partition(">")[0]]}
        for edge, readers_of in plan.uses.feeds.items()
    }
    return with_fields(
        plan,
        made=with_fields(plan.made, batches=1),
        outcome=step.outcome or plan.outcome,
        prediction=step.prediction or plan.prediction,
        groups={name: group for name, group in plan.groups.items() if name in groups},
        steps=(with_fields(step, outcome=None, prediction=None),),
        then=None,
        uses=with_fields(
            plan.uses,
            items=sizes_of_step,
            feeds=feeds,
            dropped=plan.uses.dropped if len(plan.steps) == 1 else (),
            left_out=plan.uses.left_out if len(plan.steps) == 1 else {},
            fix=with_fields(plan.uses.fix, items=fixed),
        ),
    )


def plan_inputs(plan: Plan) -> Inputs:
    """The inputs with which a plan of one step is solved again, all from `uses`.

    Raises InputError when no job can ask for such a plan, or it does not price its modules on every kind of its ranks.
    """
    module = sample_module(plan)
    if len(plan.layouts) == 1:
        require_solvable(plan)
    pricing_of(plan)
    batch = step_batch(plan, module)
    return problem_inputs(plan, plan_job(plan, module, batch, leaves_open(plan)), (batch,))


def asked_inputs(plan: Plan) -> Inputs:
    """The inputs of the job that a plan was made from, from the plan alone: what the job left open is open."""
    module = sample_module(plan)
    batches = tuple(step_batch(single_step(plan, number), module) for number in range(len(plan.steps)))
    job = plan_job(plan, module, batches[0], {"strategy": plan.made.strategy})
    return with_asks_of(problem_inputs(plan, job, batches), plan)


def problem_inputs(plan: Plan, job: Job, batches: tuple[SampleBatch, ...]) -> Inputs:
    """The inputs of a job with the models, ranks and prices of a plan."""
    uses, cluster = plan.uses, with_fields(plan.uses.cluster, ranks=plan.ranks)
    return Inputs(
        job=job,
        model=Model(
            format=Model.FORMAT,
            name=plan.name,
            source="the plan",
            modules=uses.models,
            edges=tuple(ModelEdge(source=edge.source, target=edge.target, by=edge.by) for edge in plan.edges),
        ),
        module=sample_module(plan),
        cluster=cluster,
        devices=uses.devices,
        profile=Profile(
            format=Profile.FORMAT,
            name=uses.prices.profile,
            device=uses.devices[cluster.ranks[0].kind],
            provenance=Provenance(source="the plan"),
            modules={f"{plan.name}/{key}": costs for key, costs in uses.prices.modules.items()},
            collectives=uses.prices.collectives,
        ),
        batches=batches,
        sources={},
        seed=plan.made.seed,
        effort=plan.made.effort,
        first_row=plan.made.first_row,
        rates=uses.prices.rates,
        tables=uses.tables,
        loader=uses.loader,
        software=uses.software,
        timing=uses.prices.timing,
        accounting=uses.prices.accounting,
        software_spread=uses.prices.spread,
        own_runs=uses.prices.own_runs,
    )


def sample_module(plan: Plan) -> str:
    """The module whose items are the samples: the one that feeds no other. Raises InputError where several do not."""
    if plan.uses.tasks:
        message = "towers of several tasks are placed together, and not solved again with one change"
        raise InputError(
            message,
            where=f"{plan.name} (uses.tasks)",
            fix="change its job, and planner solve JOB; items are named with their module",
        )
    sources = {edge.source for edge in plan.edges}
    ends = [name for name in plan.layouts if name not in sources]
    if len(ends) != 1:
        raise InputError(
            f"samples are items of the module that feeds no other, and {' and '.join(ends)} feed none",
            where="edges",
            fix="ask about a plan whose encoders all feed one module",
        )
    return ends[0]


def step_batch(plan: Plan, module: str) -> SampleBatch:
    """The batch of a plan of one step: samples, and the items of each encoder behind those that read them."""
    order = [module]
    while len(order) < len(plan.layouts):
        order += [name for name in plan.layouts if name not in order and {*dict(readers(plan, name))} <= {*order}]
    uses = plan.uses
    return SampleBatch(
        items={item: uses.tokens(module, item) for item in uses.items[module]},
        dropped=uses.dropped,
        streams={name: dict(uses.items[name]) for name in order[1:]},
        feeds={name: dict(readers(plan, name)) for name in order[1:]},
        left_out=uses.left_out,
    )


def readers(plan: Plan, name: str) -> Iterator[tuple[str, ReadersByItem]]:
    """Who reads the items of a module, by the module that reads them."""
    sizes = plan.uses.items[name]
    for edge in plan.edges:
        if edge.source == name:
            yield edge.target, {item: of_item for item, of_item in plan.feeds_of(edge).items() if item in sizes}


def plan_job(plan: Plan, module: str, batch: SampleBatch, decided: dict[str, Any]) -> Job:
    """The job that the plan answers, with the strategy and the layouts that are decided. Its workload is only named, as
    the batch is known.
    """
    lengths = plan.uses.sources.get("lengths")
    return Job(
        format=Job.FORMAT,
        name=plan.name,
        model=plan.name,
        cluster=plan.uses.cluster.name,
        workload=Workload(
            lengths=LengthsFile(path=lengths.path if lengths else plan.name),
            batch_rows=len(batch.items) + len(batch.dropped),
            max_tokens=max(batch.items.values()),
            module=module,
            repeated=plan.uses.repeated,
        ),
        profile=plan.uses.prices.profile,
        software=plan.uses.software.name,
        degrees=plan.uses.degrees,
        sync=plan.steps[0].sync,
        loss=plan.uses.loss,
        limits=plan.uses.limits,
        within=plan.uses.asked.within,
        tables=plan.uses.asked.tables,
        **decided,
    )


def leaves_open(plan: Plan) -> dict[str, Any]:
    """Strategy and layouts of the job that a plan answers by itself."""
    return job_fields_of_several(plan) if len(plan.layouts) > 1 else job_fields_of_one(plan)


def job_fields_of_several(plan: Plan) -> dict[str, Any]:
    """Strategy and layouts of the job of several modules, which fixes the plan's layouts."""
    layouts = {name: fixed_as_decided(plan, name) for name in plan.layouts}
    return {"strategy": plan.made.strategy, "fix": Fix(items=plan.uses.fix.items, layouts=layouts)}


def fixed_as_decided(plan: Plan, name: str) -> Parallelism:
    """A module's layout in the form of a job's `fix.layouts`, with its ranks as the plan's own job said them; dp is the
    rest of them.
    """
    layout = plan.layouts[name]
    given = plan.uses.fix.layouts.get(name, Parallelism()).ranks
    ranks: RankChoice | None = None if layout.ranks == Ranks(range(plan.size)) else layout.ranks
    ranks = given if isinstance(given, FirstStage) else ranks
    return with_fields(fixable_layout(layout), ranks=ranks, tp=layout.tp, dp=None, rank_order=layout.rank_order)


def strategy_of(plan: Plan) -> str:
    """The strategy that solves a plan's problem again: its own; of a static layout by hand, the search of these."""
    by_hand = has_static_layout(plan) and "layouts" not in plan.made.decided
    return strategy_deciding("layouts", 1) if by_hand else solving_strategy(plan.made)


def job_fields_of_one(plan: Plan) -> dict[str, Any]:
    """Strategy and layout of the job of one module, which leaves open what its strategy decided."""
    _, layout = require_solvable(plan)
    return {
        "strategy": strategy_of(plan),
        "layout": fixed_layout_fields(plan, layout),
        "fix": plan.uses.fix,
    }


def fixed_layout_fields(plan: Plan, layout: Layout) -> Parallelism:
    """The fields of a layout that its strategy did not decide: a search decides all that the job did not fix."""
    if has_static_layout(plan):
        return Parallelism(dtype=layout.dtype, gradients=layout.gradients)
    return Parallelism(zero=layout.zero, recompute=layout.layer_recompute(0), dtype=layout.dtype)
