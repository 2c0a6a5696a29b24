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
    """Edges lead from encoders to what reads them, and say of every item where it goes."""
    sources = [edge.source for edge in plan.edges]
    for at, edge in enumerate(plan.edges):
        unknown = [end for end in (edge.source, edge.target) if end not in plan.layouts]
        if unknown:
            yield Violation(f"edges[{at}]", f"the edge names `{unknown[0]}`, which has no layout", "add its layout")
        elif edge.target in sources or sources.count(edge.source) > 1:
            message = f"`{edge.source}` feeds `{edge.target}`, and one of them feeds another too"
            yield Violation(f"edges[{at}]", message, "let each module feed one that feeds none")
        else:
            yield from feed_names(plan, edge)
    for module in plan.uses.feeds:
        if module not in sources:
            yield Violation(f"uses.feeds.{module}", f"no edge leads from `{module}`", "add the edge, or remove these")


def feed_names(plan: Plan, edge: Edge) -> Iterator[Violation]:
    feeds, where = plan.uses.feeds.get(edge.source, {}), f"uses.feeds.{edge.source}"
    of_source, of_target = plan.uses.items.get(edge.source, {}), plan.uses.items.get(edge.target, {})
    for item in of_source:
        if item not in feeds:
            yield Violation(
                where, f"item {item} of `{edge.source}` feeds nothing", f"say which item of `{edge.target}`"
            )
    for item, fed in feeds.items():
        if item not in of_source or fed not in of_target:
            message = f"item {item} of `{edge.source}` feeds item {fed} of `{edge.target}`, and one of them is unknown"
            yield Violation(where, message, "add its size to uses.items, or remove it")


def order_names(plan: Plan, step: Step, where: str) -> Iterator[Violation]:
    """A schedule for each module that feeds none; placements for those that do."""
    feeding = {edge.source for edge in plan.edges}
    for key, value in step.order.items():
        if key == "place":
            if isinstance(value, str):
                yield Violation(f"{where}.place", f"`{value}` is no list of placements", "write a list here")
            wrong = [each for each in value if not isinstance(each, Place)] if not isinstance(value, str) else []
            if wrong:
                fix = "say what to do, on which group, and before, after or beside what"
                yield Violation(f"{where}.place", f"`{wrong[0]}` is no placement", fix)
        elif key not in plan.layouts or key in feeding:
            message = f"the order of `{key}` is never asked for"
            yield Violation(f"{where}.{key}", message, "name a module of layouts that feeds none, or `place`")
        elif isinstance(value, str) and value not in SCHEDULES:
            fix = f"one of {', '.join(SCHEDULES)}, or a line such as F0 F1 B0 B1 for each pipeline rank"
            yield Violation(f"{where}.{key}", f"no schedule is called `{value}`", fix)
        elif not value or any(isinstance(each, Place) for each in value):
            fix = f"a line such as F0 F1 B0 B1 for each pipeline rank, or one of {', '.join(SCHEDULES)}"
            yield Violation(f"{where}.{key}", "this is no schedule", fix)


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
