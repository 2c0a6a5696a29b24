"""Does everything that a plan names exist, and does nothing that it says go unheard?"""

from collections.abc import Iterator
from dataclasses import dataclass

from planner.plan.model import Assignment, Edge, Place, Plan, Row, Step, assignments
from planner.plan.schedules import SCHEDULES


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken law."""

    where: str
    message: str
    fix: str


def names(plan: Plan) -> Iterator[Violation]:
    """Of the head, the edges, and every step."""
    yield from head_names(plan)
    yield from edge_names(plan)
    for number, step in enumerate(plan.steps):
        yield from order_names(plan, step, f"steps[{number}].order")
        for at, row in enumerate(step.micro_batches):
            yield from row_names(plan, row, f"steps[{number}].micro_batches[{at}]")


def head_names(plan: Plan) -> Iterator[Violation]:
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


def edge_names(plan: Plan) -> Iterator[Violation]:
    """Edges lead from encoders to what reads them, never back, and say of every item where it goes."""
    edges = [edge.name for edge in plan.edges]
    for key in plan.uses.feeds:
        yield from key_names(plan, key)
    for at, edge in enumerate(plan.edges):
        unknown = [end for end in (edge.source, edge.target) if end not in plan.layouts]
        if unknown:
            yield Violation(f"edges[{at}]", f"the edge names `{unknown[0]}`, which has no layout", "add its layout")
        elif edge.name in edges[:at]:
            yield Violation(f"edges[{at}]", f"`{edge.source}` feeds `{edge.target}` twice", "remove one of these edges")
        elif edge.source in fed_from(plan, edge.target):
            message = (
                f"`{edge.source}` feeds `{edge.target}`, which leads back to `{edge.source}`: each waits for the other"
            )
            yield Violation(f"edges[{at}]", message, "remove one of the edges that lead around")
        else:
            yield from feed_names(plan, edge)
    for source in dict.fromkeys(edge.source for edge in plan.edges):
        yield from unread(plan, source)


def fed_from(plan: Plan, module: str) -> set[str]:
    """The module and all that it feeds, also through others."""
    found, ahead = {module}, [module]
    while ahead:
        source = ahead.pop()
        targets = [edge.target for edge in plan.edges if edge.source == source and edge.target not in found]
        found.update(targets)
        ahead += targets
    return found


def key_names(plan: Plan, key: str) -> Iterator[Violation]:
    """Under the name of a module there is what its only edge carries."""
    where, named = f"uses.feeds.{key}", [edge.name for edge in plan.edges if key in (edge.source, edge.name)]
    if not named:
        yield Violation(
            where, f"no edge leads from `{key.partition('>')[0]}`{told(key)}", "add the edge, or remove these"
        )
    elif key not in named and len(named) > 1:
        message = f"several edges lead from `{key}`, and this does not say which is meant"
        yield Violation(where, message, f"write it under {' and '.join(named)}")
    elif key not in named and named[0] in plan.uses.feeds:
        yield Violation(where, f"what `{key}` feeds is under {named[0]} too", "write it once")


def told(key: str) -> str:
    """Where an edge leads, if its name is given."""
    target = key.partition(">")[2]
    return f" to `{target}`" if target else ""


def unread(plan: Plan, source: str) -> Iterator[Violation]:
    """Items of a module that feeds others of which nothing is read."""
    edges = [edge for edge in plan.edges if edge.source == source]
    fed = {item for edge in edges for item, readers in plan.feeds_of(edge).items() if readers}
    for item in plan.uses.items.get(source, {}):
        if item not in fed:
            targets = " or ".join(f"`{edge.target}`" for edge in edges)
            where = f"uses.feeds.{source if len(edges) == 1 else edges[0].name}"
            yield Violation(where, f"item {item} of `{source}` feeds nothing", f"say which item of {targets}")


def feed_names(plan: Plan, edge: Edge) -> Iterator[Violation]:
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


def order_names(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """A schedule for each module that feeds none; placements for those that do."""
    feeding = {edge.source for edge in plan.edges}
    for key, value in step.order.items():
        if key == "place":
            yield from place_names(plan, value, f"{where}.place")
        elif key not in plan.layouts or key in feeding:
            message = f"the order of `{key}` is never asked for"
            yield Violation(f"{where}.{key}", message, "name a module of layouts that feeds none, or `place`")
        elif isinstance(value, str) and value not in SCHEDULES:
            fix = f"one of {', '.join(SCHEDULES)}, or a line such as F0 F1 B0 B1 for each pipeline rank"
            yield Violation(f"{where}.{key}", f"no schedule is called `{value}`", fix)
        elif not value or any(isinstance(each, Place) for each in value):
            fix = f"a line such as F0 F1 B0 B1 for each pipeline rank, or one of {', '.join(SCHEDULES)}"
            yield Violation(f"{where}.{key}", "this is no schedule", fix)


def place_names(plan: Plan, value: str | tuple[str | Place, ...], where: str) -> Iterator[Violation]:
    """What is placed is a task of a micro-batch, of a module that feeds others: their order alone is open."""
    if isinstance(value, str):
        yield Violation(where, f"`{value}` is no list of placements", "write a list here")
        return
    feeding = {edge.source for edge in plan.edges}
    for number, place in enumerate(value):
        at = f"{where}[{number}]"
        if not isinstance(place, Place):
            fix = "say what to do, on which group, and before, after or beside what"
            yield Violation(at, f"`{place}` is no placement", fix)
            continue
        unknown = [ref.module for ref in (place.moved, place.anchor) if ref.module not in plan.layouts]
        if unknown:
            yield Violation(at, f"no layout is called `{unknown[0]}`", f"one of {', '.join(plan.layouts)}")
        elif place.moved.module not in feeding:
            message = (
                f"`{place.do}` cannot be moved: `{place.moved.module}` feeds no module, and has an order of its own"
            )
            yield Violation(at, message, f"write it in order.{place.moved.module}, or move what is around it")
        elif place.moved.micro_batch is None:
            message = f"`{place.do}` cannot be moved: it is done once, at the end of the step"
            yield Violation(at, message, "move a task of a micro-batch, such as F0 or B0")


def row_names(plan: Plan, row: Row, where: str) -> Iterator[Violation]:
    bare = [key for key, value in row.items() if not isinstance(value, dict)]
    if bare and len(plan.layouts) > 1:
        message = f"the row gives items to `{bare[0]}`, and does not say of which module"
        yield Violation(where, message, f"write the group under {' or '.join(plan.layouts)}")
        return
    for a in assignments(plan, row):
        yield from assignment_names(plan, a, where)


def assignment_names(plan: Plan, a: Assignment, where: str) -> Iterator[Violation]:
    if a.module not in plan.layouts:
        yield Violation(where, f"no layout is called `{a.module}`", "use a module of layouts")
    if a.group not in plan.groups:
        yield Violation(where, f"no group is called `{a.group}`", "add it to groups")
    for item in a.items:
        if item not in plan.uses.items.get(a.module, {}):
            message = f"item {item} of `{a.module}` is unknown"
            yield Violation(where, message, "add its size to uses.items, or remove it")
