"""Explains why one step is longer or shorter than another, by the parts of the mean rank's time that differ.

The parts of each add up to its step, so their differences add up to the difference.
"""

from planner.specs.base import Spec
from planner.units import duration, percent
from planner.why.step_facts import TABLE_TERMS, Facts, GroupFacts, ModuleFacts

SMALL = 0.02  # share of all differences: smaller ones are not listed


class PartDifference(Spec, omit_defaults=False):
    """One part of the time: seconds of the mean rank in both steps, and a sentence with the counts behind it."""

    part: str
    before: float
    after: float
    text: str


def differing_parts(before: Facts, after: Facts) -> tuple[PartDifference, ...]:
    """Parts that differ enough to matter, largest difference first."""
    clauses = [
        PartDifference(part=name, before=old, after=new, text=f"{name} {change_text(old, new)}{because}")
        for name, old, new, because in step_parts(before, after)
    ]
    total = sum(abs(clause.after - clause.before) for clause in clauses)
    least = max(SMALL * total, 1e-9 * before.value)
    listed = [clause for clause in clauses if abs(clause.after - clause.before) > least]
    return tuple(sorted(listed, key=lambda clause: -abs(clause.after - clause.before)))


def step_parts(b: Facts, a: Facts) -> list[tuple[str, float, float, str]]:
    """Name, seconds before and after, and a text with the counts behind them: of several modules there is none."""
    if isinstance(b, ModuleFacts) and isinstance(a, ModuleFacts):
        names = dict.fromkeys((*b.parts, *a.parts))
        return [(name, b.parts.get(name, 0.0), a.parts.get(name, 0.0), "") for name in names]
    assert isinstance(b, GroupFacts) and isinstance(a, GroupFacts)
    crossing = f"{b.crossing_groups:,} → {a.crossing_groups:,} groups cross nodes, with {b.crossing_tokens:,} → "
    return [
        ("exchanges across nodes", b.exchange_across, a.exchange_across, f": {crossing}{a.crossing_tokens:,} tokens"),
        ("exchanges inside nodes", b.exchange_within, a.exchange_within, f": groups ⟨{b.groups}⟩ → ⟨{a.groups}⟩"),
        ("compute", b.compute, a.compute, compute_text(b, a)),
        ("gathers, reductions and transfers", b.other_comm, a.other_comm, f": {sync_text(b, a)}"),
        *((name, b.tables.get(name, 0.0), a.tables.get(name, 0.0), table_text(b, a)) for name in TABLE_TERMS),
        ("idle ranks", b.idle, a.idle, idle_text(b, a)),
    ]


def change_text(old: float, new: float) -> str:
    sign = "+" if new >= old else "−"
    return f"{sign}{duration(abs(new - old))} ({duration(old)} → {duration(new)})"


def table_text(b: GroupFacts, a: GroupFacts) -> str:
    """The groups of ranks that have each table."""
    return f": {b.table_groups} → {a.table_groups}" if b.table_groups != a.table_groups else ""


def micro_batches_text(b: GroupFacts, a: GroupFacts) -> str:
    if b.micro_batches == a.micro_batches:
        return f"{a.micro_batches} micro-batch{'es' if a.micro_batches > 1 else ''} in both"
    return f"{b.micro_batches} → {a.micro_batches} micro-batches"


def sync_text(b: GroupFacts, a: GroupFacts) -> str:
    """How often all ranks synchronise, if that changes; else the number of micro-batches."""
    if b.sync == a.sync:
        return micro_batches_text(b, a)
    often = {"micro_batch": "in each of {} micro-batches", "step": "once a step"}
    return f"ranks synchronise {often[b.sync].format(b.micro_batches)} → {often[a.sync].format(a.micro_batches)}"


def compute_text(b: GroupFacts, a: GroupFacts) -> str:
    """The fixed part of every micro-batch, or the part that grows with tokens: whichever differs more."""
    fixed, work = (b.fixed, a.fixed), (b.compute - b.fixed, a.compute - a.fixed)
    if abs(fixed[1] - fixed[0]) >= abs(work[1] - work[0]):
        return f": {duration(fixed[0])} → {duration(fixed[1])} of it is the fixed part of {micro_batches_text(b, a)}"
    ranks = f"{b.ranks} → {a.ranks} ranks" if b.ranks != a.ranks else f"{a.ranks} ranks"
    change = f"{duration(work[0])} → {duration(work[1])}"
    return f": the part that grows with tokens, {change}, for the same {a.tokens:,} tokens on {ranks}"


def idle_text(b: GroupFacts, a: GroupFacts) -> str:
    """Idle time of ranks without a group, and of those that wait for a slower one."""
    shares = f"{percent(b.idle / (b.value or 1))} → {percent(a.idle / (a.value or 1))} of the time"
    waiting = {"micro_batch": "waiting for slower groups", "step": "waiting for the rank that finishes last"}
    both = waiting[b.sync] if b.sync == a.sync else f"{waiting[b.sync]} → {waiting[a.sync]}"
    if not b.unheld and not a.unheld:
        return f": {shares}, all of it {both}"
    waits = f"{duration(b.idle - b.unheld)} → {duration(a.idle - a.unheld)} {both}"
    return f": {shares}, {duration(b.unheld)} → {duration(a.unheld)} without a group and {waits}"
