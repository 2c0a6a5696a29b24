"""Is this plan legal? Needs no costs and trusts no solver: the worker runs it too, before anything is launched.

Every finding says where, what is wrong and what would fix it. The laws: names exist; every item is worked on exactly
once; groups, splits, shares and meshes are possible; token caps hold; the kind of sync suits the ZeRO stage; no tasks
wait for each other in a circle.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from planner.errors import InputError
from planner.plan.expand import expand
from planner.plan.merge import check_waits
from planner.plan.model import Assignment, Group, Layout, Plan, Step, assignments
from planner.plan.schedules import SCHEDULES
from planner.plan.work import stage_ranks
from planner.specs.model import Module


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken law."""

    where: str
    message: str
    fix: str


def violations(plan: Plan) -> list[Violation]:
    """Every broken law; an empty list is a legal plan."""
    found = [*names(plan), *layout_laws(plan), *group_laws(plan)]
    if found:  # what follows looks names up
        return found
    found = [*item_laws(plan)]
    for number, step in enumerate(plan.steps):
        found += [*step_laws(plan, step, f"steps[{number}]")]
    return found or [*wait_laws(plan)]


def require_legal(plan: Plan, name: str) -> None:
    """Raises InputError with the first violation, and how many there are."""
    found = violations(plan)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(
            f"illegal plan: {found[0].message}{more}", where=f"{name} ({found[0].where})", fix=found[0].fix
        )


def names(plan: Plan) -> Iterator[Violation]:
    """Everything that is named exists."""
    yield from head_names(plan)
    for number, step in enumerate(plan.steps):
        for key, value in step.order.items():
            if isinstance(value, str) and value not in SCHEDULES:
                fix = f"one of {', '.join(SCHEDULES)}"
                yield Violation(f"steps[{number}].order.{key}", f"no schedule is called `{value}`", fix)
        for at, row in enumerate(step.micro_batches):
            for a in assignments(plan, row):
                yield from assignment_names(plan, a, f"steps[{number}].micro_batches[{at}]")


def head_names(plan: Plan) -> Iterator[Violation]:
    for module in plan.layouts:
        if module not in plan.uses.models:
            yield Violation(f"layouts.{module}", f"no module is called `{module}`", "add it to uses.models")
        if module not in plan.uses.items:
            yield Violation(f"uses.items.{module}", f"module `{module}` has no items", "add its items")
    for kind in plan.ranks:
        if kind.kind not in plan.uses.devices:
            yield Violation("ranks", f"the device `{kind.kind}` is not described", "add it to uses.devices")
    for edge in plan.edges:
        for end in (edge.source, edge.target):
            if end not in plan.layouts:
                yield Violation("edges", f"the edge names `{end}`, which has no layout", "add its layout")


def assignment_names(plan: Plan, a: Assignment, where: str) -> Iterator[Violation]:
    if a.module not in plan.layouts:
        yield Violation(where, f"no layout is called `{a.module}`", "use a module of layouts")
    if a.group not in plan.groups:
        yield Violation(where, f"no group is called `{a.group}`", "add it to groups")
    for item in a.items:
        if item not in plan.uses.items.get(a.module, {}):
            yield Violation(
                where, f"item {item} of `{a.module}` is unknown", "add its size to uses.items, or remove it"
            )


def layout_laws(plan: Plan) -> Iterator[Violation]:
    """Meshes fill their ranks; stages cut the layers into consecutive ranges."""
    for name, layout in plan.layouts.items():
        where = f"layouts.{name}"
        if any(rank >= plan.size for rank in layout.ranks):
            yield Violation(where, f"rank {layout.ranks[-1]} does not exist, there are {plan.size}", "use lower ranks")
        size = 1
        for extent in layout.mesh.values():
            size *= extent
        if size != len(layout.ranks):
            yield Violation(
                where, f"the mesh holds {size} ranks, the layout has {len(layout.ranks)}", "make them equal"
            )
        if name in plan.uses.models:
            yield from stage_laws(layout, plan.uses.models[name], where)


def stage_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    stages = layout.mesh.get("pp", 1)
    if (layout.stages and len(layout.stages) != stages) or (stages > 1 and not layout.stages):
        yield Violation(where, f"{len(layout.stages)} stages for pp = {stages}", "name one range of layers per stage")
    elif layout.stages and [i for stage in layout.stages for i in stage] != list(range(module.layers)):
        yield Violation(
            where, f"the stages do not cover layers 0-{module.layers - 1} in order", "cover each layer once"
        )


def group_laws(plan: Plan) -> Iterator[Violation]:
    """Groups lie on existing ranks, and a split spreads an item over exactly the group's ranks."""
    for name, group in plan.groups.items():
        where = f"groups.{name}"
        if not group.ranks or group.ranks[-1] >= plan.size:
            yield Violation(
                where, f"the group's ranks {group.ranks} are not among 0-{plan.size - 1}", "use existing ranks"
            )
        if group.split and group.degree != len(group.ranks):
            yield Violation(
                where,
                f"the split spreads over {group.degree} ranks, the group has {len(group.ranks)}",
                "make them equal",
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


def step_laws(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    for name, layout in plan.layouts.items():
        if (step.sync == "micro_batch") != (layout.zero == 3):
            meets = "meet in every micro-batch" if layout.zero == 3 else "meet once a step"
            legal = "micro_batch" if layout.zero == 3 else "step"
            message = f"the ranks of `{name}`, sharded by ZeRO-{layout.zero}, {meets}"
            yield Violation(f"{where}.sync", message, f"use sync: {legal}, or another ZeRO stage")
    for number, row in enumerate(step.micro_batches):
        placed = [*assignments(plan, row)]
        for a in placed:
            if a.layers is not None:
                message = f"the row names layers {a.layers} of `{a.module}`, and only whole modules can be assigned"
                yield Violation(f"{where}.micro_batches[{number}]", message, f"write `{a.module}`")
        yield from row_laws(plan, placed, f"{where}.micro_batches[{number}]")


def row_laws(plan: Plan, row: list[Assignment], where: str) -> Iterator[Violation]:
    """Within one micro-batch: shares of a device, heads, and tokens under the cap."""
    held: dict[tuple[str, int], float] = {}
    for a in row:
        group, layout = plan.groups[a.group], plan.layouts[a.module]
        yield from split_laws(plan.uses.models[a.module], group, f"groups.{a.group}")
        if not set(group.ranks) <= set(layout.ranks):
            yield Violation(where, f"group {a.group} has ranks outside the layout of `{a.module}`", "widen the layout")
        for rank in group.ranks:
            held[a.module, rank] = held.get((a.module, rank), 0.0) + group.share
        yield from spread_laws(layout, a, group, where)
        yield from cap_laws(plan, a, group, where)
    for (module, rank), share in held.items():
        if share > 1 + 1e-9:
            yield Violation(
                where, f"rank {rank} is held {share:g} times by groups of `{module}`", "give each rank one group"
            )


def spread_laws(layout: Layout, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """A group carries its items through the whole pipeline: it has as many ranks on every stage."""
    held = [len(set(stage_ranks(layout, stage)) & set(group.ranks)) for stage in range(layout.mesh.get("pp", 1))]
    if len(set(held)) > 1:
        yield Violation(
            where,
            f"group {a.group} has {', '.join(map(str, held))} ranks on the stages of `{a.module}`",
            "give it as many on every stage",
        )


def split_laws(module: Module, group: Group, where: str) -> Iterator[Violation]:
    """Ulysses exchanges tokens for heads: its degree divides the query heads (few key/value heads are repeated)."""
    degree = group.split.get("ulysses", 1)
    if module.heads % degree:
        yield Violation(where, f"{module.heads} heads do not spread over {degree} ranks", "another degree, or a ring")


def cap_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    cap = plan.uses.limits.tokens_per_rank
    tokens = sum(plan.uses.items[a.module][item] for item in a.items)
    if cap is not None and group.split and tokens > cap * group.degree:
        yield Violation(
            where,
            f"group {a.group} holds {tokens} tokens, {group.degree} ranks hold {cap * group.degree}",
            "move items to another group or micro-batch",
        )
    if cap is not None and not group.split and len(group.ranks) == 1 and tokens > cap:
        yield Violation(where, f"rank {group.ranks[0]} holds {tokens} tokens of {cap}", "move items elsewhere")


def wait_laws(plan: Plan) -> Iterator[Violation]:
    """No tasks wait for each other in a circle."""
    for number in range(len(plan.steps)):
        try:
            check_waits(expand(plan, number))
        except InputError as error:
            yield Violation(f"steps[{number}]", error.message, error.fix)
