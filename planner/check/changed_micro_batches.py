"""Describes micro-batches that differ: how many, degrees before and after, and how many items moved."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from planner.check.finding import Finding
from planner.plan.plan_file import MicroBatch, Plan, assignments

SHOWN = 3  # micro-batches described in full

ComparedGroup = tuple[Any, ...]  # module, layers, ranks, split, share, entries: a group's work, without its name


def changed_micro_batches(old: Plan, new: Plan, number: int) -> Iterator[Finding]:
    """A finding for a step whose micro-batches differ; at most one."""
    before = [group_works(old, micro_batch) for micro_batch in old.steps[number].micro_batches]
    after = [group_works(new, micro_batch) for micro_batch in new.steps[number].micro_batches]
    if before != after:
        yield Finding(
            category="drift",
            where=f"steps[{number}].micro_batches",
            old=all_degrees(old, number),
            new=all_degrees(new, number),
            message=change_summary(before, after),
        )


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
