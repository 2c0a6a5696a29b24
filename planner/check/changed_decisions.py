"""Findings for decisions that differ: modules, layouts, steps, items, micro-batches, order; and for what only one plan
has. Of micro-batches a finding says how many differ, their degrees before and after, and how many items moved.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from planner.check.finding import Finding
from planner.check.stale_inputs import step_items
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Layout, MicroBatch, Plan, Step, assignments
from planner.specs.base import Indices

WIDTH = 60  # characters of a list of items
SHOWN = 3  # micro-batches described in full
ComparedGroup = tuple[Any, ...]  # module, layers, ranks, split, share, entries: a group's work, without its name


def decision_findings(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for all differences but those of objective value and inputs."""
    yield from option_findings(old, new)
    yield from modules(old, new)
    if old.ranks != new.ranks:
        yield Finding("drift", "ranks", ranks_text(old), ranks_text(new), "the plans are for different ranks")
    if old.edges != new.edges:
        yield Finding("drift", "edges", edges_text(old), edges_text(new), "the modules feed each other differently")
    yield from table_findings(old, new)
    common = min(len(old.steps), len(new.steps))
    for number in range(common):
        yield from item_findings(old, new, number)
        yield from step_findings(old, new, number)
    for number in range(common, max(len(old.steps), len(new.steps))):
        yield lone_step(old, new, number)


def table_findings(old: Plan, new: Plan) -> Iterator[Finding]:
    """A finding where embedding tables are in other groups, and one with how many are placed otherwise."""
    before, after = old.embeddings, new.embeddings
    if before == after:
        return
    if before is None or after is None:
        message = "the plan places embedding tables" if before is None else "embedding tables are no longer placed"
        yield Finding("added" if before is None else "removed", "embeddings", None, None, message)
        return
    for name in ("groups", "replicas", "average_every"):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            yield Finding("drift", f"embeddings.{name}", str(one), str(other), f"{name} of tables: {one} → {other}")
    moved = [name for name in before.tables if before.tables[name] != after.tables.get(name)]
    if moved:
        yield Finding(
            "drift", "embeddings.tables", None, None, f"{len(moved)} tables are placed otherwise: {moved[0]} …"
        )


def option_findings(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for the options with which the plans were solved; the version of planner does not matter."""
    for name in ("strategy", "seed", "effort", "batches", "first_row"):
        before, after = getattr(old.made, name), getattr(new.made, name)
        if before != after:
            message = f"made with {name} {after} instead of {before}"
            yield Finding("drift", f"made.{name}", str(before), str(after), message)


def modules(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for modules that are gone or new, or whose layout differs."""
    for name in {**old.layouts, **new.layouts}:
        where = f"layouts.{name}"
        if name not in new.layouts:
            yield Finding("removed", where, full_layout_text(old.layouts[name]), None, f"the module `{name}` is gone")
        elif name not in old.layouts:
            yield Finding("added", where, None, full_layout_text(new.layouts[name]), f"the module `{name}` is new")
        elif old.layouts[name] != new.layouts[name]:
            before, after = full_layout_text(old.layouts[name]), full_layout_text(new.layouts[name])
            yield Finding("drift", where, before, after, f"the layout of `{name}` differs: {before} → {after}")


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
            yield Finding("removed", where, gone, None, f"items of `{module}` that are gone: {gone}")
        if has - had:
            come = count_and_numbers(has - had)
            yield Finding("added", where, None, come, f"items of `{module}` that are new: {come}")
        resized = {i for i in had & has if old.uses.items[module][i] != new.uses.items[module][i]}
        if resized:
            yield Finding(
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
        return Finding("removed", f"steps[{number}]", text, None, message)
    return Finding("added", f"steps[{number}]", None, text, message)


def step_findings(old: Plan, new: Plan, number: int) -> Iterator[Finding]:
    """Findings for a step that both plans have: its synchronisation, micro-batches and order."""
    one, other = old.steps[number], new.steps[number]
    where = f"steps[{number}]"
    if one.sync != other.sync:
        message = f"ranks synchronise after every {other.sync} instead of every {one.sync}".replace("_", "-")
        yield Finding("drift", f"{where}.sync", one.sync, other.sync, message)
    yield from changed_micro_batches(old, new, number)
    for key in {**one.order, **other.order}:
        if one.order.get(key) != other.order.get(key):
            before, after = order_text(one, key), order_text(other, key)
            yield Finding("drift", f"{where}.order.{key}", before, after, f"the order of `{key}` differs")


def order_text(step: Step, key: str) -> str | None:
    order = step.order.get(key)
    if not isinstance(order, tuple):
        return order
    return f"{len(order)} placements" if key == "place" else " | ".join(map(str, order))


def changed_micro_batches(old: Plan, new: Plan, number: int) -> Iterator[Finding]:
    """A finding for a step whose micro-batches differ; at most one."""
    before = [group_works(old, micro_batch) for micro_batch in old.steps[number].micro_batches]
    after = [group_works(new, micro_batch) for micro_batch in new.steps[number].micro_batches]
    if before != after:
        degrees = all_degrees(old, number), all_degrees(new, number)
        yield Finding("drift", f"steps[{number}].micro_batches", *degrees, change_summary(before, after))


def change_summary(before: list[list[ComparedGroup]], after: list[list[ComparedGroup]]) -> str:
    """One line: `1 of 3 micro-batches differs: [2] ⟨32,16,8x2⟩ → ⟨32x2⟩; 4 of 48 items moved`."""
    if Counter(map(str, before)) == Counter(map(str, after)):
        return "the same micro-batches in another order"
    was, now = item_places(before), item_places(after)
    moved = sum(was[item] != now[item] for item in was if item in now)
    if not moved and was.keys() == now.keys():
        return "the same groups work on the same items in another order"
    many = max(len(before), len(after))
    differing = [at for at in range(many) if before[at : at + 1] != after[at : at + 1]]
    changes = [f"[{at}] {degrees_text(before, at)} → {degrees_text(after, at)}" for at in differing[:SHOWN]]
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    differ = "differs" if len(differing) == 1 else "differ"
    return (
        f"{len(differing)} of {many} micro-batches {differ}: {', '.join(changes)}{more}; "
        f"{moved} of {len(was)} items moved"
    )


def group_works(plan: Plan, micro_batch: MicroBatch) -> list[ComparedGroup]:
    """A micro-batch by content: groups may be renamed or listed in another order."""
    found = []
    for a in assignments(plan, micro_batch):
        group = plan.groups[a.group]
        layout = plan.layouts[a.module]
        entries = tuple(zip(a.items, a.offload_shares(layout), strict=True))
        split = group.resolved_split(layout)
        found.append((a.module, str(a.layers or ""), group.ranks, split, a.share, entries))
    return sorted(found)


def item_places(micro_batches: list[list[ComparedGroup]]) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    """(module, layers, item) → its micro-batch, ranks, split, share and offload."""
    return {
        (module, layers, item): (at, *group, offload)
        for at, groups in enumerate(micro_batches)
        for module, layers, *group, entries in groups
        for item, offload in entries
    }


def degrees_text(micro_batches: list[list[ComparedGroup]], at: int) -> str:
    """The degrees of a micro-batch as a multiset, by module where there are several; `nothing` if it is missing."""
    if at >= len(micro_batches):
        return "nothing"
    by_module: dict[str, Counter[int]] = {}
    for module, _, _, split, _, _ in micro_batches[at]:
        by_module.setdefault(module, Counter())[split.degree] += 1
    texts = [f"{module} {multiset(counts)}" for module, counts in by_module.items()]
    return " ".join(texts) if len(texts) > 1 else "".join(map(multiset, by_module.values())) or "⟨⟩"


def multiset(counts: Counter[int]) -> str:
    """`⟨32,16,8x2⟩`, widest first."""
    parts = [
        f"{degree}x{count}" if count > 1 else str(degree) for degree, count in sorted(counts.items(), reverse=True)
    ]
    return f"⟨{','.join(parts)}⟩"


def all_degrees(plan: Plan, number: int) -> str:
    """The degrees of a step by micro-batch; of a long step, only the first ones."""
    micro_batches = [group_works(plan, micro_batch) for micro_batch in plan.steps[number].micro_batches]
    text = " ".join(degrees_text(micro_batches, at) for at in range(min(len(micro_batches), 2 * SHOWN)))
    return text if len(micro_batches) <= 2 * SHOWN else f"{text} … ({len(micro_batches)} micro-batches)"
