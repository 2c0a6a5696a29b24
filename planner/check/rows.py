"""Micro-batches that differ, said as a person would: how many, which degrees before and after, how many items moved."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from planner.check.finding import Finding
from planner.plan.model import Plan, Row, assignments

SHOWN = 3  # micro-batches spelled out

Cell = tuple[Any, ...]  # module, layers, ranks, split, share, entries: a group's work, whatever the group is called


def changed_rows(old: Plan, new: Plan, number: int) -> Iterator[Finding]:
    """At most one finding for a step."""
    before = [cells(old, row) for row in old.steps[number].micro_batches]
    after = [cells(new, row) for row in new.steps[number].micro_batches]
    if before != after:
        yield Finding(
            category="drift",
            where=f"steps[{number}].micro_batches",
            old=all_degrees(old, number),
            new=all_degrees(new, number),
            message=summary(before, after),
        )


def summary(before: list[list[Cell]], after: list[list[Cell]]) -> str:
    """`1 of 3 micro-batches differs: [2] ⟨32,16,8x2⟩ → ⟨32x2⟩; 4 of 48 items moved`."""
    if Counter(map(str, before)) == Counter(map(str, after)):
        return "the same micro-batches in another order"
    was, now = places(before), places(after)
    moved = sum(was[item] != now[item] for item in was if item in now)
    if not moved and was.keys() == now.keys():
        return "the same groups work on the same items in another order"
    many = max(len(before), len(after))
    differing = [at for at in range(many) if before[at : at + 1] != after[at : at + 1]]
    changes = [f"[{at}] {degrees(before, at)} → {degrees(after, at)}" for at in differing[:SHOWN]]
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    differ = "differs" if len(differing) == 1 else "differ"
    return (
        f"{len(differing)} of {many} micro-batches {differ}: {', '.join(changes)}{more}; "
        f"{moved} of {len(was)} items moved"
    )


def cells(plan: Plan, row: Row) -> list[Cell]:
    """A row by content: groups may be renamed or listed in another order."""
    found = []
    for a in assignments(plan, row):
        group = plan.groups[a.group]
        layout = plan.layouts[a.module]
        entries = tuple(zip(a.items, a.offload_in(layout), strict=True))
        split = group.split_in(layout)
        found.append((a.module, str(a.layers or ""), group.ranks, split, a.share, entries))
    return sorted(found)


def places(rows: list[list[Cell]]) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    """(module, layers, item) → in which micro-batch, on which ranks and how it is worked on."""
    return {
        (module, layers, item): (at, *group, offload)
        for at, row in enumerate(rows)
        for module, layers, *group, entries in row
        for item, offload in entries
    }


def degrees(rows: list[list[Cell]], at: int) -> str:
    """The degrees of a micro-batch as a multiset, by module where there are several; `nothing` where it is not."""
    if at >= len(rows):
        return "nothing"
    found: dict[str, Counter[int]] = {}
    for module, _, _, split, _, _ in rows[at]:
        found.setdefault(module, Counter())[split.degree] += 1
    texts = [f"{module} {multiset(counts)}" for module, counts in found.items()]
    return " ".join(texts) if len(texts) > 1 else "".join(map(multiset, found.values())) or "⟨⟩"


def multiset(counts: Counter[int]) -> str:
    """`⟨32,16,8x2⟩`, widest first."""
    parts = [f"{what}x{often}" if often > 1 else str(what) for what, often in sorted(counts.items(), reverse=True)]
    return f"⟨{','.join(parts)}⟩"


def all_degrees(plan: Plan, number: int) -> str:
    """The degrees of a step, row by row; of a long one, its beginning."""
    rows = [cells(plan, row) for row in plan.steps[number].micro_batches]
    text = " ".join(degrees(rows, at) for at in range(min(len(rows), 2 * SHOWN)))
    return text if len(rows) <= 2 * SHOWN else f"{text} … ({len(rows)} micro-batches)"
