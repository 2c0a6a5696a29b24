"""Layouts of the modules of a job, on their ranks, as one plan: those that the job fixes, or that a search tries.

Which sample and which item goes where is decided for all modules together (assignment/joint_assignment.py); items of a
module that is alone go to whoever has least (assignment/module_items.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, inf
from typing import NamedTuple, TypeVar

from planner.costs import Pricing, SharedPrices, once_a_step_seconds, pricing_of
from planner.errors import Infeasible, InputError
from planner.layouts import unbounded_jointly
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal, require_legal_layouts
from planner.plan.mesh.synchronisation import reduces_each_micro_batch
from planner.plan.plan_file import Edge, Group, Layout, MicroBatch, Plan, group_name
from planner.scoring import (
    Score,
    TriedPlan,
    outcome_of,
    over_joint_space,
    prediction_of,
    require_memory,
    score,
    with_hidden_offload,
    with_score,
)
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import rank_kinds
from planner.specs.inputs import Inputs
from planner.specs.job import BY_HAND
from planner.strategies.assignment.encoder_orders import Orders, few_orders, order_rules, orders_of
from planner.strategies.assignment.joint_assignment import JointItems
from planner.strategies.assignment.joint_streams import AssignmentRule, JointAssignment
from planner.strategies.assignment.module_items import assign_items, micro_batch_count, replica_groups
from planner.strategies.assignment.packed_modules import packs_samples
from planner.strategies.assignment.sample_assignment import packed_micro_batches
from planner.strategies.plan_drafts import draft_plan, plan_uses, pricing_of_draft
from planner.strategies.static.placement import placed_layouts
from planner.strategies.table import decided_by

Checked = TypeVar("Checked")
Choose = Callable[[JointItems], JointAssignment]
AS_FIXED = "layouts as fixed"  # the effort of an outcome


def unsupported_together(inputs: Inputs) -> str | None:
    """The reason why the modules of a job cannot be planned together, and the fix after ` | `; None when they can."""
    if inputs.model.tasks:
        return "a fixed layout says nothing of which samples of several tasks are where | planner solve, by task_waves"
    unlike = len(rank_kinds(inputs.cluster)) > 1 and len(inputs.model.modules) > 1
    return undefined_items(inputs) or ("several modules need ranks of one kind | give a plan" if unlike else None)


def undefined_items(inputs: Inputs) -> str | None:
    """The modules whose items a job does not define, and the fix after ` | `; None where it defines all."""
    known = {inputs.module, *inputs.batches[0].streams}
    others = " and ".join(f"`{name}`" for name in inputs.model.modules if name not in known)
    none = "lengths: {from: sample_mix, text: 2048, multimodal: 0, text_only: 1}"
    fix = f"for text alone, {none}; or give workload.streams"
    return f"the job does not define the items of {others} | {fix}" if others else None


def solve_together(inputs: Inputs) -> Plan:
    """The priced plan of the layouts that a job fixes, with the bound over all assignments. Raises InputError, and
    Infeasible where it does not fit.
    """
    plan, found = priced_together(inputs)
    require_memory(plan, found)
    return plan if unbounded_jointly(inputs) else over_joint_space(plan)


def priced_together(inputs: Inputs, runs: bool = True) -> tuple[Plan, Score]:
    """The plan with its outcome, whether it fits or not, and its score. Raises InputError."""
    plan = plan_together(inputs, runs)
    found = score(plan)
    return with_fields(plan, outcome=outcome_of(found, AS_FIXED), prediction=prediction_of(found)), found


def assign_batch(inputs: Inputs, earlier: Plan) -> Plan:
    """The priced plan of a batch in which layouts are those of an `earlier` one, in the largest micro-batches that fit.
    Raises InputError, and Infeasible where none do.
    """

    def priced(draft: Plan) -> Plan:
        require_legal(draft, str(inputs.file))
        return with_score(draft, AS_FIXED)

    return first_that_fits(drafts_of_batch(inputs, earlier), priced)


def drafts_of_batch(inputs: Inputs, earlier: Plan) -> Iterator[Plan]:
    """The plans of a batch with layouts of an earlier one, before their check: with micro-batches of as many samples as
    the layout says, then of fewer and fewer, as its own samples may hold more; of its items as much offloaded as hides
    behind them. Passes of encoders run as they did, or as is estimated to be quicker.
    """
    layouts, usual = earlier.layouts, [orders_of(earlier), *few_orders(inputs, earlier.layouts)]
    llm = layouts[inputs.module]
    for size in (llm.micro_batch,) if packs_samples(inputs) else falling_sizes(llm, len(inputs.batches[0].items)):
        smaller = {**layouts, inputs.module: with_fields(llm, micro_batch=size)}
        draft = with_fields(draft_of_layouts(inputs, smaller, orders=usual), layouts=layouts)
        yield with_hidden_offload(draft, pricing_of(draft))


def falling_sizes(layout: Layout, samples: int) -> Iterator[int]:
    """The samples of a micro-batch: as a layout says, then in half as many micro-batches more, down to one sample."""
    each, count = ceil(samples / (layout.dp * layout.replica)), micro_batch_count(layout, samples)
    yield (size := layout.micro_batch)
    while size > 1:
        count += max(1, count // 2)
        if ceil(each / count) < size:
            yield (size := ceil(each / count))


def first_that_fits(drafts: Iterable[Plan], checked: Callable[[Plan], Checked]) -> Checked:
    """What the check gives of the first draft that fits. Raises Infeasible as the first did where none does."""
    refused = list[Infeasible]()
    for draft in drafts:
        try:
            return checked(draft)
        except Infeasible as error:
            refused.append(error)
    raise refused[0]


def plan_together(inputs: Inputs, runs: bool = True) -> Plan:
    """The unpriced plan of the layouts that a job fixes. Raises InputError when a layout's degrees do not divide
    evenly, a rank would have no module, or, if it is to run, the batch does not divide over the layout of the samples;
    and Infeasible where a sample is more than a rank may hold.
    """
    by_hand = replace(inputs, job=with_fields(inputs.job, strategy=BY_HAND))
    return plan_of_layouts(by_hand, placed_layouts(inputs, runs and not packs_samples(inputs)), runs)


def plan_of_layouts(
    inputs: Inputs, layouts: dict[str, Layout], runs: bool = True, orders: Sequence[Orders] = ()
) -> Plan:
    """The unpriced plan of one batch with a decided layout of every module, by the job's strategy: the quicker of two
    assignments, with one of these `orders` of encoders' passes. Raises InputError where its layouts, or if it is to
    run, it as a whole is not legal, and Infeasible where a sample is more than a rank may hold.
    """
    require_lawful(inputs, layouts, plan_edges(inputs, layouts))
    plan = quicker_assignment(inputs, draft_of_layouts(inputs, layouts, orders=orders))
    if runs:
        require_legal(plan, str(inputs.file))
    return plan


def require_lawful(inputs: Inputs, layouts: dict[str, Layout], edges: tuple[Edge, ...] = ()) -> None:
    """Raises InputError where no plan can have these layouts, before anything is assigned to their ranks."""
    draft = draft_plan(inputs, plan_uses(inputs, layouts, ()), layouts, {}, ())
    require_legal_layouts(with_fields(draft, edges=edges), str(inputs.file))


def quicker_assignment(
    inputs: Inputs, draft: Plan, seconds: float = inf, others: Sequence[Choose] = (JointItems.by_samples,)
) -> Plan:
    """The draft, or a plan of its layouts whose samples are assigned otherwise, by the LLM alone, if that fits and its
    step is quicker by simulation: what drafts are chosen by is an estimate. Packed samples are as they are, and
    so are items of a module that is alone. `seconds`: of the draft's step, where it was simulated before.
    """
    for choose in () if packs_samples(inputs) or len(draft.layouts) == 1 else others:
        other = draft_of_layouts(inputs, draft.layouts, choose, [orders_of(draft)])
        if other.steps != draft.steps:
            seconds = fitting_seconds(draft) if seconds == inf else seconds
            draft, seconds = min((draft, seconds), (other, fitting_seconds(other)), key=lambda each: each[1])
    return draft


def fitting_seconds(plan: Plan, shared: SharedPrices | None = None) -> float:
    """Seconds of a plan's step by simulation, as files have them; infinite where it does not fit. `shared`: prices,
    with other plans of its job.
    """
    tried = TriedPlan(plan, SharedPrices() if shared is None else shared)
    try:
        tried.require_memory()
        return round_digits(tried.step_seconds())
    except (Infeasible, InputError):
        return inf


def draft_of_layouts(
    inputs: Inputs, layouts: dict[str, Layout], choose: Choose = JointItems.best, orders: Sequence[Orders] = ()
) -> Plan:
    """The plan of one batch before its check; `choose`: which assignment is taken, where samples are not packed.
    `orders`: of encoders' passes, a few usual ones where there are none; of those that fit the one that is estimated to
    be the quickest, where none does that which needs least. Raises Infeasible where a sample is more than a rank may
    hold.
    """
    shared, some = SharedPrices(), orders or few_orders(inputs, layouts)
    drafts = [estimated_draft(inputs, layouts, some[0], shared, choose)]
    if rule := drafts[0].rule:  # which is as good for other orders, and takes long to find
        choose = partial(JointItems.by_rule, rule=rule)
    others = [each for number, each in enumerate(some) if each not in some[:number]][1:]
    drafts += [estimated_draft(inputs, layouts, each, shared, choose) for each in others]
    drafts.sort(key=lambda each: each.seconds)
    shares = list[float]()
    for each in drafts if len(drafts) > 1 and inputs.job.limits.tokens_per_rank is None else ():
        shares.append(TriedPlan(each.plan, shared).least_share)
        if shares[-1] <= 1.0:
            return each.plan
    return drafts[shares.index(min(shares)) if shares else 0].plan


class EstimatedDraft(NamedTuple):
    """A plan before its check, and what its step takes about."""

    plan: Plan
    seconds: float  # of its assignment and what the LLM does once a step; infinite where samples are packed without one
    rule: AssignmentRule | None = None  # of its assignment


def estimated_draft(
    inputs: Inputs, layouts: dict[str, Layout], orders: Orders, shared: SharedPrices, choose: Choose = JointItems.best
) -> EstimatedDraft:
    """The plan of one batch before its check, with the estimate of its seconds; `shared`: prices, with other plans of
    the job.
    """
    pricing, seconds, rule = pricing_for(inputs, layouts, shared), inf, None
    if packs_samples(inputs):
        micro_batches, groups = packed_by_group(pricing, inputs, layouts)
    elif len(layouts) == 1:
        micro_batches, groups = items_by_group(pricing, inputs, layouts[inputs.module])
    else:
        chosen = choose(JointItems(pricing, inputs, layouts, orders))
        rule = chosen.rule
        seconds = chosen.seconds + once_a_step_seconds(pricing, inputs.module, chosen.seconds)
        micro_batches, groups = assigned_by_group(chosen, inputs, layouts)
    sharded = any(map(reduces_each_micro_batch, layouts.values()))
    grouped = "groups" in decided_by(inputs.job.strategy, len(layouts))  # which are none of static layouts' decisions
    strategy = BY_HAND if grouped else inputs.job.strategy
    job = with_fields(inputs.job, sync="micro_batch" if sharded else "step", strategy=strategy)
    plan = draft_plan(
        replace(inputs, job=job),
        plan_uses(inputs, layouts, ()),
        layouts,
        groups,
        nonempty_micro_batches(micro_batches, layouts[inputs.module]),
    )
    return EstimatedDraft(with_orders(with_fields(plan, edges=plan_edges(inputs, layouts)), orders), seconds, rule)


def with_orders(plan: Plan, orders: Orders) -> Plan:
    """A plan of one step whose encoders' passes run in these orders, as rules say it."""
    (step,), rules = plan.steps, order_rules(orders, plan.edges)
    return with_fields(plan, steps=(with_fields(step, order={"place": rules} if rules else {}),))


def pricing_for(inputs: Inputs, layouts: dict[str, Layout], shared: SharedPrices | None = None) -> Pricing:
    """What prices items of modules with these layouts."""
    return pricing_of_draft(inputs, plan_uses(inputs, layouts, ()), layouts, shared)


def packed_by_group(
    pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]
) -> tuple[list[MicroBatch], dict[str, Group]]:
    """Micro-batches of samples that are packed to the job's limits, and the groups by name. Raises InputError."""
    groups = {name: [*replica_groups(layout).values()] for name, layout in layouts.items()}
    packed = packed_micro_batches(pricing, inputs, layouts)
    return micro_batches_of(inputs.module, packed, groups), named_groups(groups)


def items_by_group(pricing: Pricing, inputs: Inputs, layout: Layout) -> tuple[list[MicroBatch], dict[str, Group]]:
    """Micro-batches of a module that is alone, and its replicas as groups by name."""
    groups, of_replicas = replica_groups(layout), assign_items(pricing, inputs, layout)
    micro_batches = [
        {name: items for name, items in zip(groups, each, strict=True) if items}
        for each in zip(*of_replicas, strict=True)
    ]
    return micro_batches, groups


def assigned_by_group(
    found: JointAssignment, inputs: Inputs, layouts: dict[str, Layout]
) -> tuple[list[MicroBatch], dict[str, Group]]:
    """Micro-batches of an assignment, and the groups by name."""
    groups = {name: [*used_groups(found.groups[name], layouts[name], found.cells[name])] for name in layouts}
    count = len(found.cells[inputs.module])
    by_number = [{name: of_module[number] for name, of_module in found.cells.items()} for number in range(count)]
    return micro_batches_of(inputs.module, by_number, found.groups), named_groups(groups)


def used_groups(groups: Sequence[Group], layout: Layout, cells: Sequence[Sequence[Sequence[int]]]) -> Iterator[Group]:
    """The replicas of a module, and those of its other groups that have items."""
    for number, group in enumerate(groups):
        if number < layout.dp * layout.replica or any(of_groups[number] for of_groups in cells):
            yield group


def micro_batches_of(
    module: str, by_number: Iterable[Mapping[str, Sequence[Sequence[int]]]], groups: Mapping[str, Sequence[Group]]
) -> list[MicroBatch]:
    """Items by module and group; modules but that of the samples only where they have items."""
    names = {
        name: [group_name_of(name, number, group) for number, group in enumerate(own)] for name, own in groups.items()
    }
    return [
        {
            name: {names[name][number]: tuple(sorted(items)) for number, items in enumerate(cells) if items}
            for name, cells in each.items()
            if name == module or any(cells)
        }
        for each in by_number
    ]


def named_groups(groups: Mapping[str, Sequence[Group]]) -> dict[str, Group]:
    """The groups of all modules by name."""
    return {
        group_name_of(name, number, group): group for name, own in groups.items() for number, group in enumerate(own)
    }


def group_name_of(module: str, number: int, group: Group) -> str:
    """The name of a replica by its number, of a group that splits items otherwise by its ranks."""
    return f"{module}.{group_name(group.ranks)}" if group.split else f"{module}.dp{number}"


def nonempty_micro_batches(micro_batches: Sequence[MicroBatch], layout: Layout) -> tuple[MicroBatch, ...]:
    """The micro-batches without empty ones, which interleaving keeps."""
    return tuple(micro_batch for micro_batch in micro_batches if any(micro_batch.values()) or layout.vpp > 1)


def plan_edges(inputs: Inputs, layouts: dict[str, Layout], groups: Iterable[Group] = ()) -> tuple[Edge, ...]:
    """The edges of the model, resharded where the target uses a ring; `groups`: of the module of the samples."""
    rings = {name for name, layout in layouts.items() if layout.default_split.ring > 1}
    rings |= {inputs.module for group in groups if group.resolved_split(layouts[inputs.module]).ring > 1}
    return tuple(
        Edge(
            source=edge.source,
            target=edge.target,
            by=edge.by,
            reshard="zigzag" if edge.target in rings else "contiguous",
        )
        for edge in inputs.model.edges
    )
