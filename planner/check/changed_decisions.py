"""Findings for decisions that differ: modules, layouts, steps, items, order; and for what only one plan has."""

from collections.abc import Iterator

from planner.check.changed_micro_batches import changed_micro_batches
from planner.check.finding import Category, Finding
from planner.check.stale_inputs import step_items
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Layout, Plan, Step
from planner.specs.base import Indices

WIDTH = 60  # characters of a list of items


def decision_findings(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for all differences but those of objective value and inputs."""
    yield from option_findings(old, new)
    yield from modules(old, new)
    if old.ranks != new.ranks:
        yield finding("drift", "ranks", ranks_text(old), ranks_text(new), "the plans are for different ranks")
    if old.edges != new.edges:
        yield finding("drift", "edges", edges_text(old), edges_text(new), "the modules feed each other differently")
    common = min(len(old.steps), len(new.steps))
    for number in range(common):
        yield from item_findings(old, new, number)
        yield from step_findings(old, new, number)
    for number in range(common, max(len(old.steps), len(new.steps))):
        yield lone_step(old, new, number)


def finding(category: Category, where: str, old: str | None, new: str | None, message: str) -> Finding:
    return Finding(category=category, where=where, old=old, new=new, message=message)


def option_findings(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for the options with which the plans were solved; the version of planner does not matter."""
    for name in ("strategy", "seed", "effort", "batches", "first_row"):
        before, after = getattr(old.made, name), getattr(new.made, name)
        if before != after:
            message = f"made with {name} {after} instead of {before}"
            yield finding("drift", f"made.{name}", str(before), str(after), message)


def modules(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for modules that are gone or new, or whose layout differs."""
    for name in {**old.layouts, **new.layouts}:
        where = f"layouts.{name}"
        if name not in new.layouts:
            yield finding("removed", where, full_layout_text(old.layouts[name]), None, f"the module `{name}` is gone")
        elif name not in old.layouts:
            yield finding("added", where, None, full_layout_text(new.layouts[name]), f"the module `{name}` is new")
        elif old.layouts[name] != new.layouts[name]:
            before, after = full_layout_text(old.layouts[name]), full_layout_text(new.layouts[name])
            yield finding("drift", where, before, after, f"the layout of `{name}` differs: {before} → {after}")


def full_layout_text(layout: Layout) -> str:
    """Everything in which two layouts can differ."""
    stages = f"stages {' '.join(map(str, layout.stages))} · " if layout.stages else ""
    return f"ranks {layout.ranks} · {stages}{layout_text(layout)}"


def ranks_text(plan: Plan) -> str:
    return ", ".join(f"{kind.count} x {kind.kind}" for kind in plan.ranks)


def edges_text(plan: Plan) -> str:
    kinds = (f"by {edge.by.replace('_', ' ')}, {edge.reshard}" for edge in plan.edges)
    return ", ".join(f"{edge.source} → {edge.target} ({kind})" for edge, kind in zip(plan.edges, kinds, strict=True))


def item_findings(old: Plan, new: Plan, number: int) -> Iterator[Finding]:
    """Findings for items that only one plan has, and for items whose size changed."""
    before, after = step_items(old, number), step_items(new, number)
    for module in {**before, **after}:
        where = f"steps[{number}].items.{module}"
        had, has = before.get(module, set()), after.get(module, set())
        if had - has:
            gone = count_and_numbers(had - has)
            yield finding("removed", where, gone, None, f"items of `{module}` that are gone: {gone}")
        if has - had:
            come = count_and_numbers(has - had)
            yield finding("added", where, None, come, f"items of `{module}` that are new: {come}")
        resized = {i for i in had & has if old.uses.items[module][i] != new.uses.items[module][i]}
        if resized:
            yield finding(
                "drift", where, None, None, f"items of `{module}` changed in size: {count_and_numbers(resized)}"
            )


def count_and_numbers(numbers: set[int]) -> str:
    """Count and numbers: `3 (0-1,7)`; a long list is cut."""
    text = str(Indices(sorted(numbers)))
    shown = text if len(text) <= WIDTH else f"{text[:WIDTH].rpartition(',')[0]},…"
    return f"{len(numbers)} ({shown})"


def lone_step(old: Plan, new: Plan, number: int) -> Finding:
    """The finding for a step that only one of the plans has."""
    gone = number < len(old.steps)
    plan = old if gone else new
    placed = sum(len(work) for work in step_items(plan, number).values())
    text = f"{len(plan.steps[number].micro_batches)} micro-batches, {placed} items"
    message = f"step {number} ({text}) is {'gone' if gone else 'new'}"
    if gone:
        return finding("removed", f"steps[{number}]", text, None, message)
    return finding("added", f"steps[{number}]", None, text, message)


def step_findings(old: Plan, new: Plan, number: int) -> Iterator[Finding]:
    """Findings for a step that both plans have: its synchronisation, micro-batches and order."""
    one, other = old.steps[number], new.steps[number]
    where = f"steps[{number}]"
    if one.sync != other.sync:
        message = f"ranks synchronise after every {other.sync} instead of every {one.sync}".replace("_", "-")
        yield finding("drift", f"{where}.sync", one.sync, other.sync, message)
    yield from changed_micro_batches(old, new, number)
    for key in {**one.order, **other.order}:
        if one.order.get(key) != other.order.get(key):
            before, after = order_text(one, key), order_text(other, key)
            yield finding("drift", f"{where}.order.{key}", before, after, f"the order of `{key}` differs")


def order_text(step: Step, key: str) -> str | None:
    order = step.order.get(key)
    if not isinstance(order, tuple):
        return order
    return f"{len(order)} placements" if key == "place" else " | ".join(map(str, order))
