"""Is this plan legal? Needs no costs and trusts no solver: the worker runs it too, before anything is launched.

Every finding says where, what is wrong and what would fix it. The laws: names exist; every item is worked on exactly
once; outputs of encoders fit where they stand; groups, splits, shares and meshes are possible; token caps hold; the
kind of sync suits the ZeRO stage; no tasks wait for each other in a circle.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil

from planner.errors import InputError
from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.feeding import feed_laws
from planner.plan.layout_laws import layout_laws
from planner.plan.merge import check_waits
from planner.plan.model import Assignment, Group, Layout, Plan, Step, assignments
from planner.plan.names import Violation, names
from planner.plan.orders import order_laws
from planner.plan.spread import Spread
from planner.specs.cluster import kind_of
from planner.specs.items import size_faults
from planner.specs.layers import Module
from planner.specs.shapes import resident_layers

__all__ = ["Violation", "require_legal", "violations"]


def violations(plan: Plan) -> list[Violation]:
    """Every broken law; an empty list is a legal plan."""
    found = [*names(plan), *layout_laws(plan), *group_laws(plan)]
    if found:  # what follows looks names up
        return found
    found, spread = [*size_laws(plan), *item_laws(plan), *feed_laws(plan)], Spread(plan)
    for number, step in enumerate(plan.steps):
        found += [*step_laws(plan, step, spread, f"steps[{number}]")]
    return found or [*wait_laws(plan)]


def require_legal(plan: Plan, name: str) -> None:
    """Raises InputError with the first violation, and how many there are."""
    found = violations(plan)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(
            f"illegal plan: {found[0].message}{more}", where=f"{name} ({found[0].where})", fix=found[0].fix
        )


def group_laws(plan: Plan) -> Iterator[Violation]:
    """Groups lie on existing ranks."""
    for name, group in plan.groups.items():
        where = f"groups.{name}"
        if not group.ranks or group.ranks[-1] >= plan.size:
            yield Violation(
                where, f"the group's ranks {group.ranks} are not among 0-{plan.size - 1}", "use existing ranks"
            )


def item_laws(plan: Plan) -> Iterator[Violation]:
    """Every item of every module exactly once over all steps."""
    seen: dict[str, Counter[int]] = {module: Counter() for module in plan.layouts}
    for step in plan.steps:
        for row in step.micro_batches:
            for a in assignments(plan, row):
                seen[a.module].update(a.items)
    for module, counts in seen.items():
        where = f"uses.items.{module}"
        missing = [item for item in plan.uses.items[module] if item not in counts]
        if missing:
            yield Violation(
                where, f"item {missing[0]} of `{module}` is assigned nowhere ({len(missing)} such)", "assign it"
            )
        twice = [item for item, count in counts.items() if count > 1]
        if twice:
            yield Violation(
                where, f"item {twice[0]} of `{module}` is assigned {counts[twice[0]]} times", "assign it once"
            )


def size_laws(plan: Plan) -> Iterator[Violation]:
    """Sizes are in the unit of what their module reads, and whole multiples of what it merges."""
    for module in plan.layouts:
        spec = plan.uses.models[module]
        for item, size in plan.uses.items[module].items():
            yield from (Violation(f"uses.items.{module}.{item}", *wrong) for wrong in size_faults(spec, module, size))


def step_laws(plan: Plan, step: Step, spread: Spread, where: str) -> Iterator[Violation]:
    yield from sync_laws(plan, step, f"{where}.sync")
    yield from order_laws(plan, step, f"{where}.order")
    rows = [[*assignments(plan, row)] for row in step.micro_batches]
    if not any(a.entries for row in rows for a in row):
        yield Violation(where, "the step works on nothing", "give it items, or remove it")
    for number, row in enumerate(rows):
        for a in row:
            if a.layers is not None:
                message = f"the row names layers {a.layers} of `{a.module}`, and only whole modules can be assigned"
                yield Violation(f"{where}.micro_batches[{number}]", message, f"write `{a.module}`")
        yield from row_laws(plan, row, spread, f"{where}.micro_batches[{number}]")


def sync_laws(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """ZeRO-3's gathers make all ranks meet in every micro-batch; without them nothing does."""
    sharded = [name for name, layout in plan.layouts.items() if layout.zero == 3]
    if sharded and step.sync == "step":
        message = f"the ranks of `{sharded[0]}`, sharded by ZeRO-3, meet in every micro-batch"
        yield Violation(where, message, "use sync: micro_batch, or another ZeRO stage")
    if not sharded and step.sync == "micro_batch":
        message = "no module is sharded by ZeRO-3, so the ranks meet once a step"
        yield Violation(where, message, "use sync: step, or zero: 3")


def row_laws(plan: Plan, row: list[Assignment], spread: Spread, where: str) -> Iterator[Violation]:
    """Within one micro-batch: shares of devices, heads, and tokens under the cap."""
    for a in row:
        group = plan.groups[a.group]
        yield from split_laws(plan.uses.models[a.module], plan.layouts[a.module], group, f"groups.{a.group}")
        yield from cap_laws(plan, a, group, where)
        yield from offload_laws(plan, a, group, where)
        yield from degree_laws(plan, a, group, where)
        yield from sharing_laws(plan, a, group)
    placed = tuple((a.module, a.group, a.share) for module in plan.layouts for a in row if a.module == module)
    for module, name, _ in placed:
        yield from (Violation(where, *wrong) for wrong in spread.of(module, name))
    yield from (Violation(where, *wrong) for wrong in spread.held(placed))


def split_laws(module: Module, layout: Layout, group: Group, where: str) -> Iterator[Violation]:
    """Ulysses exchanges tokens for heads: its degree divides the query heads that tensor parallelism leaves a rank (few
    key/value heads are repeated). Some modules exchange nothing.
    """
    tp, split = layout.tp, group.split_in(layout)
    if module.unparted and split.degree > 1 and layout.cp == 1:
        message = f"{module.unparted}, and the group parts them over {split.degree} ranks"
        yield Violation(f"{where}.split", message, "groups of one rank on each stage")
    degree = split.ulysses
    if module.heads // tp % degree:
        heads = f"the {module.heads // tp} heads of a rank with tp = {tp}" if tp > 1 else f"{module.heads} heads"
        fix = "another degree, a ring, or a smaller tp" if tp > 1 else "another degree, or a ring"
        yield Violation(where, f"{heads} do not spread over {degree} ranks", fix)


def sharing_laws(plan: Plan, a: Assignment, group: Group) -> Iterator[Violation]:
    """Where a layout has cp, that is over how many ranks every group of it spreads an item."""
    layout = plan.layouts[a.module]
    degree = group.split_in(layout).degree
    if layout.cp > 1 and degree != layout.cp:
        message = f"the group's split is over {degree} ranks, and the layout of `{a.module}` has cp {layout.cp}"
        yield Violation(f"groups.{a.group}.split", message, f"leave it out, or cp: 1 in layouts.{a.module}")


def cap_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """Of what is offloaded, only what stays on the device counts."""
    cap, layout = plan.uses.limits.tokens_per_rank, plan.layouts[a.module]
    if cap is None:
        return
    layers = min((len(stage) for stage in layout.stages), default=plan.uses.models[a.module].layers)
    ways = group.split_in(layout).degree * layout.tp
    offload = ratios(a, layout)
    tokens = sum(
        plan.uses.tokens(a.module, item) * resident_layers(layers, offload.get(item, 0.0)) / layers for item in a.items
    )
    if tokens > cap * ways:
        message = f"group {a.group} holds {ceil(tokens)} tokens, its {ways} ranks may hold {cap * ways}"
        yield Violation(where, message, "move items to another group or micro-batch")


def ratios(a: Assignment, layout: Layout) -> dict[int, float]:
    """Of the items that are offloaded, how much of their activations."""
    return {item: share for item, share in zip(a.items, a.offload_in(layout), strict=True) if share}


def offload_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """Activations leave only devices with a known way to their host; whether that hides is a matter of prices."""
    offload = ratios(a, plan.layouts[a.module])
    kinds = sorted({kind_of(plan.uses.cluster, rank) for rank in group.ranks}) if offload else []
    for kind in kinds:
        if plan.uses.devices[kind].host_gb_per_s is None:
            message = f"item {min(offload)} is offloaded from `{kind}`, which states no bandwidth to its host"
            yield Violation(where, message, f"set its offload to 0, or add host_gb_per_s to uses.devices.{kind}")


def degree_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """Degrees are those that the plan's bound is for, and those that were fixed."""
    allowed, fixed = plan.uses.degrees, plan.uses.fix.items
    degree = group.split_in(plan.layouts[a.module]).degree
    if allowed and degree not in allowed:
        message = f"group {a.group} has degree {degree}, and uses.degrees are {', '.join(map(str, allowed))}"
        yield Violation(where, message, "use one of them, or add it there")
    for item in a.items:
        if item in fixed and fixed[item].degree != degree:
            message = f"item {item} is fixed to degree {fixed[item].degree}, and group {a.group} has {degree}"
            yield Violation(where, message, "move it to a group of that degree")


def wait_laws(plan: Plan) -> Iterator[Violation]:
    """No tasks wait for each other in a circle."""
    for number in range(len(plan.steps)):
        try:
            check_waits(expand(plan, number, alike_groups(plan, number).ranks))
        except InputError as error:
            yield Violation(f"steps[{number}]{error.where.removeprefix('steps')}", error.message, error.fix)
