"""The check whether a plan is legal, that is, can be executed. It needs no costs and trusts no solver: runs make it
too.

Every violation has its place, what is wrong, and the fix. The laws: names exist; every item is assigned exactly once;
outputs of encoders fit their readers; groups, splits, shares and meshes are possible; token caps and limits of inputs
hold; the kind of sync suits the ZeRO stage; the software can launch the layouts; every embedding table is placed, once
in each group; tasks have samples of their modules; dependencies of tasks have no cycle.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from planner.errors import InputError
from planner.plan.legal.feature_laws import repeated_laws, whole_item_laws
from planner.plan.legal.feeding_laws import feed_laws
from planner.plan.legal.group_laws import GroupPlacement
from planner.plan.legal.layout_laws import layout_laws
from planner.plan.legal.limit_laws import input_laws, launch_laws, limit_name_laws
from planner.plan.legal.name_laws import name_laws
from planner.plan.legal.order_laws import order_laws
from planner.plan.legal.table_laws import table_laws
from planner.plan.legal.task_laws import task_laws
from planner.plan.legal.violation import Violation
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Assignment, Group, Layout, Plan, Step, assignments
from planner.plan.tasks.expand import expand
from planner.plan.tasks.merge_orders import check_waits
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.layers import Module
from planner.specs.shapes import resident_layers
from planner.specs.workload.items import size_faults

__all__ = ["Violation", "require_legal", "require_legal_layouts", "violations"]


def violations(plan: Plan) -> list[Violation]:
    """Return all violations; a legal plan has none."""
    broken = [*layout_laws(plan), *name_laws(plan), *limit_name_laws(plan), *repeated_laws(plan), *group_laws(plan)]
    broken += [*table_laws(plan), *task_laws(plan)]
    if broken:  # the laws below look names up
        return broken
    broken, placement = [*launch_laws(plan), *size_laws(plan), *item_laws(plan), *feed_laws(plan)], GroupPlacement(plan)
    for number, step in enumerate(plan.steps):
        broken += [*step_laws(plan, step, placement, f"steps[{number}]")]
    return broken or [*wait_laws(plan)]


def require_legal(plan: Plan, name: str) -> None:
    """Raises InputError with the first violation and the number of others; `name` is the plan's file."""
    require_none(violations(plan), name)


def require_legal_layouts(plan: Plan, name: str) -> None:
    """Raises InputError with the first violation in layouts that a job fixes, before a plan has items; `name`: of the
    job's file.
    """
    require_none([replace(each, where=f"fix.{each.where}") for each in layout_laws(plan)], name)


def require_none(found: Sequence[Violation], name: str) -> None:
    """Raises InputError with the first of these violations, in the file `name`."""
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(
            f"illegal plan: {found[0].message}{more}", where=f"{name} ({found[0].where})", fix=found[0].fix
        )


def group_laws(plan: Plan) -> Iterator[Violation]:
    """Ranks of groups exist."""
    for name, group in plan.groups.items():
        where = f"groups.{name}"
        if not group.ranks or group.ranks[-1] >= plan.size:
            yield Violation(
                where, f"the group's ranks {group.ranks} are not among 0-{plan.size - 1}", "use existing ranks"
            )


def item_laws(plan: Plan) -> Iterator[Violation]:
    """Every item of every module is assigned exactly once over all steps."""
    seen: dict[str, Counter[int]] = {module: Counter() for module in plan.layouts}
    for step in plan.steps:
        for micro_batch in step.micro_batches:
            for a in assignments(plan, micro_batch):
                seen[a.module].update(a.items)
    for module, counts in seen.items():
        where = f"uses.items.{module}"
        missing = [item for item in plan.uses.items[module] if item not in counts]
        if missing:
            yield Violation(
                where, f"item {missing[0]} of `{module}` is assigned nowhere ({len(missing)} such)", "assign it"
            )
        repeated = [item for item, count in counts.items() if count > 1]
        if repeated:
            yield Violation(
                where, f"item {repeated[0]} of `{module}` is assigned {counts[repeated[0]]} times", "assign it once"
            )


def size_laws(plan: Plan) -> Iterator[Violation]:
    """Sizes of items are in their module's input unit, and multiples of its tokens per output."""
    for module in plan.layouts:
        spec = plan.uses.models[module]
        for item, size in plan.uses.items[module].items():
            yield from (Violation(f"uses.items.{module}.{item}", *fault) for fault in size_faults(spec, module, size))


def step_laws(plan: Plan, step: Step, placement: GroupPlacement, where: str) -> Iterator[Violation]:
    """The laws of sync and order, and of every micro-batch; a step has items."""
    yield from sync_laws(plan, step, f"{where}.sync")
    yield from order_laws(plan, step, f"{where}.order")
    micro_batches = [[*assignments(plan, micro_batch)] for micro_batch in step.micro_batches]
    if not any(a.entries for micro_batch in micro_batches for a in micro_batch):
        yield Violation(where, "the step has no items", "give it items, or remove it")
    for number, micro_batch in enumerate(micro_batches):
        for a in micro_batch:
            if a.layers is not None:
                message = (
                    f"the micro-batch names layers {a.layers} of `{a.module}`, and only whole modules can be assigned"
                )
                yield Violation(f"{where}.micro_batches[{number}]", message, f"write `{a.module}`")
        yield from micro_batch_laws(plan, micro_batch, placement, f"{where}.micro_batches[{number}]")


def sync_laws(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """All ranks synchronise in every micro-batch if and only if some module is sharded by ZeRO-3."""
    sharded = [name for name, layout in plan.layouts.items() if layout.zero == 3]
    if sharded and step.sync == "step":
        message = f"the ranks of `{sharded[0]}`, sharded by ZeRO-3, synchronise in every micro-batch"
        yield Violation(where, message, "use sync: micro_batch, or another ZeRO stage")
    if not sharded and step.sync == "micro_batch":
        message = "no module is sharded by ZeRO-3, so the ranks synchronise once a step"
        yield Violation(where, message, "use sync: step, or zero: 3")


def micro_batch_laws(
    plan: Plan, micro_batch: list[Assignment], placement: GroupPlacement, where: str
) -> Iterator[Violation]:
    """The laws of one micro-batch: splits, token caps, offload, degrees, placement of groups, shares of devices."""
    for a in micro_batch:
        group = plan.groups[a.group]
        yield from split_laws(plan.uses.models[a.module], plan.layouts[a.module], group, f"groups.{a.group}")
        yield from cap_laws(plan, a, group, where)
        yield from input_laws(plan, a, group, where)
        yield from offload_laws(plan, a, group, where)
        yield from whole_item_laws(plan, a, group, where)
        yield from degree_laws(plan, a, group, where)
        yield from context_parallel_laws(plan, a, group)
    shares = tuple((a.module, a.group, a.share) for module in plan.layouts for a in micro_batch if a.module == module)
    for module, name, _ in shares:
        yield from (Violation(where, *fault) for fault in placement.faults(module, name))
    yield from (Violation(where, *fault) for fault in placement.share_faults(shares))


def split_laws(module: Module, layout: Layout, group: Group, where: str) -> Iterator[Violation]:
    """The Ulysses degree divides the query heads that tensor parallelism leaves a rank (key/value heads are repeated
    where there are fewer). Modules whose sequences cannot be sharded have groups of one rank a stage.
    """
    tp, split = layout.tp, group.resolved_split(layout)
    if module.unshardable_reason and split.degree > 1 and layout.cp == 1:
        message = f"{module.unshardable_reason}, and the group shards them over {split.degree} ranks"
        yield Violation(f"{where}.split", message, "groups of one rank on each stage")
    degree = split.ulysses
    if module.heads // tp % degree:
        heads = f"the {module.heads // tp} heads of a rank with tp = {tp}" if tp > 1 else f"{module.heads} heads"
        fix = "another degree, a ring, or a smaller tp" if tp > 1 else "another degree, or a ring"
        yield Violation(where, f"{heads} cannot be sharded over {degree} ranks", fix)


def context_parallel_laws(plan: Plan, a: Assignment, group: Group) -> Iterator[Violation]:
    """Where a layout has cp, every group shards its items over cp ranks."""
    layout = plan.layouts[a.module]
    degree = group.resolved_split(layout).degree
    if layout.cp > 1 and degree != layout.cp:
        message = f"the group's split is over {degree} ranks, and the layout of `{a.module}` has cp {layout.cp}"
        yield Violation(f"groups.{a.group}.split", message, f"leave it out, or cp: 1 in layouts.{a.module}")


def cap_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """A group has at most the allowed tokens; of offloaded activations the share on the device counts. A module whose
    inputs have a limit of their own keeps that instead.
    """
    cap, layout = plan.uses.limits.tokens_per_rank, plan.layouts[a.module]
    if cap is None or a.module in plan.uses.limits.inputs_per_rank:
        return
    layers = min((len(stage) for stage in layout.stages), default=plan.uses.models[a.module].layers)
    degree = group.resolved_split(layout).degree * layout.tp
    offload = {} if layout.offloaded_parts else offload_shares(a, layout)  # of kinds, all tokens leave some behind
    tokens = sum(
        plan.uses.tokens(a.module, item) * resident_layers(layers, offload.get(item, 0.0)) / layers for item in a.items
    )
    if tokens > cap * degree:
        message = f"group {a.group} holds {ceil(tokens)} tokens, its {degree} ranks may hold {cap * degree}"
        yield Violation(where, message, "move items to another group or micro-batch")


def offload_shares(a: Assignment, layout: Layout) -> dict[int, float]:
    """Return, by item that is offloaded, the share of its activations in host memory."""
    return {item: share for item, share in zip(a.items, a.offload_shares(layout), strict=True) if share}


def offload_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """Activations are offloaded only from devices with a known host bandwidth; whether it overlaps is priced."""
    offload = offload_shares(a, plan.layouts[a.module])
    kinds = sorted({device_of_rank(plan.uses.cluster, rank) for rank in group.ranks}) if offload else []
    for kind in kinds:
        if plan.uses.devices[kind].host_gb_per_s is None:
            message = f"item {min(offload)} is offloaded from `{kind}`, which states no bandwidth to its host"
            yield Violation(where, message, f"set its offload to 0, or add host_gb_per_s to uses.devices.{kind}")


def degree_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """Degrees are among those that the plan's bound is for, and those that the job fixed."""
    allowed, fixed = plan.uses.degrees, plan.uses.fix.items
    degree = group.resolved_split(plan.layouts[a.module]).degree
    if allowed and degree not in allowed:
        message = f"group {a.group} has degree {degree}, and uses.degrees are {', '.join(map(str, allowed))}"
        yield Violation(where, message, "use one of them, or add it there")
    for item in a.items:
        if item in fixed and fixed[item].degree != degree:
            message = f"item {item} is fixed to degree {fixed[item].degree}, and group {a.group} has {degree}"
            yield Violation(where, message, "move it to a group of that degree")


def wait_laws(plan: Plan) -> Iterator[Violation]:
    """Dependencies of tasks have no cycle."""
    for number in range(len(plan.steps)):
        try:
            check_waits(expand(plan, number, identical_groups(plan, number).ranks))
        except InputError as error:
            yield Violation(f"steps[{number}]{error.where.removeprefix('steps')}", error.message, error.fix)
