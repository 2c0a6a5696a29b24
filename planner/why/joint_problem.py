"""Recovers the problem of a plan of several modules: its inputs, with the layouts that the plan decided as fixed."""

from collections.abc import Iterator

from planner.costs import pricing_of
from planner.errors import InputError
from planner.plan.descriptions import fixable_layout
from planner.plan.plan_file import Plan
from planner.specs.base import FirstStage, RankChoice, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.job import Fix, Job
from planner.specs.model import Model, ModelEdge
from planner.specs.parallelism import Parallelism
from planner.specs.workload.length_sources import LengthsFile, Workload
from planner.specs.workload.samples import ReadersByItem, SampleBatch
from planner.why.plan_problem import inputs_from_uses


def joint_inputs(plan: Plan) -> Inputs:
    """The inputs of a plan of several modules and one step, all from `uses`; their job fixes the
    layouts of the plan.

    Raises InputError when the plan does not say which module reads the samples, or prices none of them.
    """
    module = sample_module(plan)
    pricing_of(plan)
    uses = plan.uses
    model = Model(
        format=Model.FORMAT,
        name=plan.name,
        source="the plan",
        modules=uses.models,
        edges=tuple(ModelEdge(source=edge.source, target=edge.target, by=edge.by) for edge in plan.edges),
    )
    batch = joint_batch(plan, module)
    return inputs_from_uses(plan, joint_job(plan, module, batch), model, module, batch)


def sample_module(plan: Plan) -> str:
    """The module whose items are the samples: the one that feeds no other. Raises InputError where several do not."""
    sources = {edge.source for edge in plan.edges}
    ends = [name for name in plan.layouts if name not in sources]
    if len(ends) != 1:
        raise InputError(
            f"samples are items of the module that feeds no other, and {' and '.join(ends)} feed none",
            where="edges",
            fix="ask about a plan whose encoders all feed one module",
        )
    return ends[0]


def joint_batch(plan: Plan, module: str) -> SampleBatch:
    """The batch: samples, and the items of each encoder behind those that read them."""
    order = [module]
    while len(order) < len(plan.layouts):
        order += [name for name in plan.layouts if name not in order and {*readers_of(plan, name)} <= {*order}]
    uses = plan.uses
    return SampleBatch(
        items={item: uses.tokens(module, item) for item in uses.items[module]},
        dropped=uses.dropped,
        streams={name: dict(uses.items[name]) for name in order[1:]},
        feeds={name: dict(read_items(plan, name)) for name in order[1:]},
        left_out=uses.left_out,
    )


def readers_of(plan: Plan, name: str) -> tuple[str, ...]:
    """The modules that read a module's outputs."""
    return tuple(edge.target for edge in plan.edges if edge.source == name)


def read_items(plan: Plan, name: str) -> Iterator[tuple[str, ReadersByItem]]:
    """Who reads the items of a module, by the module that reads them."""
    own = plan.uses.items[name]
    for edge in plan.edges:
        if edge.source == name:
            yield edge.target, {item: readers for item, readers in plan.feeds_of(edge).items() if item in own}


def joint_job(plan: Plan, module: str, batch: SampleBatch) -> Job:
    """The job that the plan answers, which fixes all of its layouts. Its workload is only named."""
    lengths = plan.uses.sources.get("lengths")
    layouts = {name: fixed_as_decided(plan, name) for name in plan.layouts}
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
        strategy=plan.made.strategy,
        degrees=plan.uses.degrees,
        sync=plan.steps[0].sync,
        loss=plan.uses.loss,
        limits=plan.uses.limits,
        fix=Fix(items=plan.uses.fix.items, layouts=layouts),
    )


def fixed_as_decided(plan: Plan, name: str) -> Parallelism:
    """A module's layout in the form of a job's `fix.layouts`, with its ranks as the plan's own job said them; dp is the
    rest of them.
    """
    layout = plan.layouts[name]
    every = Ranks(range(plan.size))
    given = plan.uses.fix.layouts.get(name, Parallelism()).ranks
    ranks: RankChoice | None = None if layout.ranks == every else layout.ranks
    ranks = given if isinstance(given, FirstStage) else ranks
    return with_fields(fixable_layout(layout), ranks=ranks, tp=layout.tp, dp=None, rank_order=layout.rank_order)
