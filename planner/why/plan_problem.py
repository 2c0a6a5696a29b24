"""Recovers a plan's own problem: the inputs of a strategy for one step, from the plan file alone."""

from planner.costs import pricing_of
from planner.errors import InputError
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Layout, Plan, assignments
from planner.specs.base import with_fields
from planner.specs.hardware.profile import Profile, Provenance
from planner.specs.inputs import Inputs
from planner.specs.job import FixedItem, Job
from planner.specs.model import Model
from planner.specs.parallelism import Parallelism
from planner.specs.workload.items import part_lengths
from planner.specs.workload.length_sources import LengthsFile, Workload
from planner.specs.workload.samples import SampleBatch
from planner.strategies import strategy_deciding


def only_module(plan: Plan) -> tuple[str, Layout]:
    """The only module of a plan of groups, which have neither pipeline nor tensor parallelism, and its layout. Raises
    InputError otherwise.
    """
    name, layout = planned_module(plan)
    if has_static_layout(plan):
        raise InputError(
            "a static layout places no single sequence and no group: its replicas take turns",
            where=f"layouts ({name})",
            fix="`planner why PLAN` for the step, and `planner why-not PLAN KEY=VALUE` for another layout",
        )
    return name, layout


def planned_module(plan: Plan) -> tuple[str, Layout]:
    """The only module of a plan whose problem a strategy can solve again, and its layout. Raises InputError."""
    (name, layout), *others = plan.layouts.items()
    if others:
        raise InputError(
            f"items are asked about in a plan of one module, and this one has {len(plan.layouts)}",
            where=f"layouts ({', '.join(plan.layouts)})",
            fix="`planner why PLAN` for the step, `planner why PLAN GROUP` for a group of a module, and "
            "`planner why-not PLAN MODULE.FIELD=VALUE` for another layout",
        )
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
    own = {
        name: {item: size for item, size in each.items() if item in items[name]}
        for name, each in plan.uses.items.items()
    }
    feeds = {
        edge: {item: readers for item, readers in each.items() if item in items[edge.partition(">")[0]]}
        for edge, each in plan.uses.feeds.items()
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
            items=own,
            feeds=feeds,
            dropped=plan.uses.dropped if len(plan.steps) == 1 else (),
            left_out=plan.uses.left_out if len(plan.steps) == 1 else {},
            fix=with_fields(plan.uses.fix, items=fixed_items(plan, {item for own in items.values() for item in own})),
        ),
    )


def fixed_items(plan: Plan, items: set[int]) -> dict[int, FixedItem]:
    return {item: fixed for item, fixed in plan.uses.fix.items.items() if item in items}


def plan_inputs(plan: Plan) -> Inputs:
    """The inputs with which a strategy solves a plan of one step again, all from `uses`.

    Raises InputError when the plan does not price its module on every kind of its ranks.
    """
    module, layout = planned_module(plan)
    pricing_of(plan)
    uses = plan.uses
    batch = SampleBatch({item: uses.tokens(module, item) for item in uses.items[module]}, uses.dropped)
    model = Model(format=Model.FORMAT, name=plan.name, source="the plan", modules={module: uses.models[module]})
    return inputs_from_uses(plan, plan_job(plan, layout, batch), model, module, batch)


def inputs_from_uses(plan: Plan, job: Job, model: Model, module: str, batch: SampleBatch) -> Inputs:
    """The inputs of a job about one step of a plan, priced as the plan is."""
    uses, cluster = plan.uses, with_fields(plan.uses.cluster, ranks=plan.ranks)
    return Inputs(
        job=job,
        model=model,
        module=module,
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
        batches=(batch,),
        sources={},
        seed=plan.made.seed,
        effort=plan.made.effort,
        first_row=plan.made.first_row,
        rates=uses.prices.rates,
        software=uses.software,
        timing=uses.prices.timing,
        accounting=uses.prices.accounting,
        software_spread=uses.prices.spread,
        own_runs=uses.prices.own_runs,
    )


def plan_job(plan: Plan, layout: Layout, batch: SampleBatch) -> Job:
    """The job that the plan answers. Its workload is only named, as the batch is known."""
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
        ),
        profile=plan.uses.prices.profile,
        software=plan.uses.software.name,
        strategy=strategy_of(plan),
        layout=fixed_layout_fields(plan, layout),
        degrees=plan.uses.degrees,
        sync=plan.steps[0].sync,
        loss=plan.uses.loss,
        limits=plan.uses.limits,
        fix=plan.uses.fix,
    )


def strategy_of(plan: Plan) -> str:
    """The strategy that solves a plan's problem again: its own; of a static layout by hand, the search of these."""
    by_hand = has_static_layout(plan) and "layouts" not in plan.made.decided
    return strategy_deciding("layouts", 1) if by_hand else plan.made.strategy


def fixed_layout_fields(plan: Plan, layout: Layout) -> Parallelism:
    """The fields of a layout that its strategy did not decide: a search decides all that the job did not fix."""
    if has_static_layout(plan):
        return Parallelism(dtype=layout.dtype, gradients=layout.gradients)
    return Parallelism(zero=layout.zero, recompute=layout.layer_recompute(0), dtype=layout.dtype)
