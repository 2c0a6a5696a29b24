"""Laws of names: everything that a plan names exists, and no key of it is without effect."""

from collections.abc import Iterator

from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Assignment, Edge, MicroBatch, Plan, Step, TaskPlacement, assignments
from planner.plan.schedules import SCHEDULES


def name_laws(plan: Plan) -> Iterator[Violation]:
    """Yield violations of names in layouts and ranks, in edges, and in every step."""
    yield from layout_name_laws(plan)
    yield from edge_name_laws(plan)
    for number, step in enumerate(plan.steps):
        yield from order_name_laws(plan, step, f"steps[{number}].order")
        for index, micro_batch in enumerate(step.micro_batches):
            yield from micro_batch_name_laws(plan, micro_batch, f"steps[{number}].micro_batches[{index}]")


def layout_name_laws(plan: Plan) -> Iterator[Violation]:
    """Modules have shapes and items, kinds of ranks are described, and the cluster has all ranks."""
    for module in plan.layouts:
        if module not in plan.uses.models:
            yield Violation(f"layouts.{module}", f"no module is called `{module}`", "add it to uses.models")
        if module not in plan.uses.items:
            yield Violation(f"uses.items.{module}", f"module `{module}` has no items", "add its items")
    for kind in dict.fromkeys(kind.kind for kind in (*plan.ranks, *plan.uses.cluster.ranks)):
        if kind not in plan.uses.devices:
            yield Violation("ranks", f"the device `{kind}` is not described", "add it to uses.devices")
    if plan.size > plan.uses.cluster.size:
        message = f"the plan has {plan.size} ranks, its cluster {plan.uses.cluster.size}"
        yield Violation("ranks", message, "make `ranks` and `uses.cluster.ranks` agree")


def edge_name_laws(plan: Plan) -> Iterator[Violation]:
    """Edges lead from encoders to their readers without a cycle, and every item of an encoder has a reader."""
    edges = [edge.name for edge in plan.edges]
    for key in plan.uses.feeds:
        yield from feed_key_laws(plan, key)
    for at, edge in enumerate(plan.edges):
        unknown = [module for module in (edge.source, edge.target) if module not in plan.layouts]
        if unknown:
            yield Violation(f"edges[{at}]", f"the edge names `{unknown[0]}`, which has no layout", "add its layout")
        elif edge.name in edges[:at]:
            yield Violation(f"edges[{at}]", f"`{edge.source}` feeds `{edge.target}` twice", "remove one of these edges")
        elif edge.source in reachable_modules(plan, edge.target):
            message = (
                f"`{edge.source}` feeds `{edge.target}`, which leads back to `{edge.source}`: each waits for the other"
            )
            yield Violation(f"edges[{at}]", message, "remove one of the edges of this cycle")
        else:
            yield from feed_item_laws(plan, edge)
    for source in dict.fromkeys(edge.source for edge in plan.edges):
        yield from unread_item_laws(plan, source)


def reachable_modules(plan: Plan, module: str) -> set[str]:
    """Return the module and all modules that it feeds, directly or through others."""
    reached, pending = {module}, [module]
    while pending:
        source = pending.pop()
        targets = [edge.target for edge in plan.edges if edge.source == source and edge.target not in reached]
        reached.update(targets)
        pending += targets
    return reached


def feed_key_laws(plan: Plan, key: str) -> Iterator[Violation]:
    """A key of `uses.feeds` names an edge, or a module with one edge, and each edge is given once."""
    where, named = f"uses.feeds.{key}", [edge.name for edge in plan.edges if key in (edge.source, edge.name)]
    if not named:
        yield Violation(
            where, f"no edge leads from `{key.partition('>')[0]}`{target_text(key)}", "add the edge, or remove these"
        )
    elif key not in named and len(named) > 1:
        message = f"several edges lead from `{key}`, and this key names none of them"
        yield Violation(where, message, f"write it under {' and '.join(named)}")
    elif key not in named and named[0] in plan.uses.feeds:
        yield Violation(where, f"what `{key}` feeds is under {named[0]} too", "keep one of them")


def target_text(key: str) -> str:
    """Return the target that a key of `uses.feeds` names, as text; empty where it names a module."""
    target = key.partition(">")[2]
    return f" to `{target}`" if target else ""


def unread_item_laws(plan: Plan, source: str) -> Iterator[Violation]:
    """Every item of an encoder feeds some item."""
    edges = [edge for edge in plan.edges if edge.source == source]
    fed = {item for edge in edges for item, readers in plan.feeds_of(edge).items() if readers}
    for item in plan.uses.items.get(source, {}):
        if item not in fed:
            targets = " or ".join(f"`{edge.target}`" for edge in edges)
            where = f"uses.feeds.{source if len(edges) == 1 else edges[0].name}"
            yield Violation(
                where, f"item {item} of `{source}` feeds nothing", f"name the item of {targets} that reads it"
            )


def feed_item_laws(plan: Plan, edge: Edge) -> Iterator[Violation]:
    """Items on both ends of an edge exist, and no item feeds another twice."""
    feeds = plan.feeds_of(edge)
    where = f"uses.feeds.{edge.name if edge.name in plan.uses.feeds else edge.source}"
    of_source, of_target = plan.uses.items.get(edge.source, {}), plan.uses.items.get(edge.target, {})
    for item, readers in feeds.items():
        unknown = [fed for fed in readers if item not in of_source or fed not in of_target]
        if unknown:
            message = f"item {item} of `{edge.source}` feeds item {unknown[0]} of `{edge.target}`"
            yield Violation(where, f"{message}, and one of them is unknown", "add its size to uses.items, or remove it")
        if len(set(readers)) < len(readers):
            twice = next(fed for fed in readers if readers.count(fed) > 1)
            message = f"item {item} of `{edge.source}` feeds item {twice} of `{edge.target}` twice"
            yield Violation(where, message, "write it once")


def order_name_laws(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """A step's order has schedules of modules that feed no other, and placements of encoders' tasks."""
    feeding = {edge.source for edge in plan.edges}
    for key, value in step.order.items():
        if key == "place":
            yield from placement_name_laws(plan, value, f"{where}.place")
        elif key not in plan.layouts or key in feeding:
            message = f"the order of `{key}` has no effect"
            yield Violation(f"{where}.{key}", message, "name a module of layouts that feeds no other, or `place`")
        elif isinstance(value, str) and value not in SCHEDULES:
            fix = f"one of {', '.join(SCHEDULES)}, or a line such as F0 F1 B0 B1 for each pipeline rank"
            yield Violation(f"{where}.{key}", f"no schedule is called `{value}`", fix)
        elif not value or any(isinstance(each, TaskPlacement) for each in value):
            fix = f"a line such as F0 F1 B0 B1 for each pipeline rank, or one of {', '.join(SCHEDULES)}"
            yield Violation(f"{where}.{key}", "this is no schedule", fix)


def placement_name_laws(plan: Plan, value: str | tuple[str | TaskPlacement, ...], where: str) -> Iterator[Violation]:
    """A placement moves a task of a micro-batch of an encoder: other modules follow their schedules."""
    if isinstance(value, str):
        yield Violation(where, f"`{value}` is no list of placements", "write a list here")
        return
    feeding = {edge.source for edge in plan.edges}
    for number, placement in enumerate(value):
        at = f"{where}[{number}]"
        if not isinstance(placement, TaskPlacement):
            fix = "write `do`, one of `before`, `after` and `beside`, and `on` for one group alone"
            yield Violation(at, f"`{placement}` is no placement", fix)
            continue
        unknown = [ref.module for ref in (placement.moved, placement.anchor) if ref.module not in plan.layouts]
        if unknown:
            yield Violation(at, f"no layout is called `{unknown[0]}`", f"one of {', '.join(plan.layouts)}")
        elif placement.moved.module not in feeding:
            module = placement.moved.module
            message = f"`{placement.do}` cannot be moved: `{module}` feeds no module, and has an order of its own"
            yield Violation(at, message, f"write it in order.{placement.moved.module}, or move what is around it")
        elif placement.is_rule:
            read = [edge.target for edge in plan.edges if edge.source == placement.moved.module]
            if placement.anchor.module not in read:
                message = f"`{placement.anchor.module}` reads nothing of `{placement.moved.module}`"
                yield Violation(at, message, f"a pass of {' or '.join(read)}")
        elif placement.moved.micro_batch is None:
            message = f"`{placement.do}` cannot be moved: it runs once, at the end of the step"
            yield Violation(at, message, "move a task of a micro-batch, such as F0 or B0")


def micro_batch_name_laws(plan: Plan, micro_batch: MicroBatch, where: str) -> Iterator[Violation]:
    """A micro-batch names its modules where the plan has several, and modules, groups and items that exist."""
    groups = [key for key, value in micro_batch.items() if not isinstance(value, dict)]
    if groups and len(plan.layouts) > 1:
        message = f"the micro-batch gives items to `{groups[0]}` without naming their module"
        yield Violation(where, message, f"write the group under {' or '.join(plan.layouts)}")
        return
    for a in assignments(plan, micro_batch):
        yield from assignment_name_laws(plan, a, where)


def assignment_name_laws(plan: Plan, a: Assignment, where: str) -> Iterator[Violation]:
    """The module, the group and the items of an assignment exist."""
    if a.module not in plan.layouts:
        yield Violation(where, f"no layout is called `{a.module}`", "use a module of layouts")
    if a.group not in plan.groups:
        yield Violation(where, f"no group is called `{a.group}`", "add it to groups")
    for item in a.items:
        if item not in plan.uses.items.get(a.module, {}):
            message = f"item {item} of `{a.module}` is unknown"
            yield Violation(where, message, "add its size to uses.items, or remove it")
