"""What else was tried, as a ranked table: the best first, ties called ties, what has no value last and merged."""

import re
from collections.abc import Iterator
from math import exp

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from planner.plan.descriptions import alternative_text
from planner.plan.plan_file import Plan
from planner.scoring import (
    UndecidedOrder,
    objective_of,
    ranked_alternatives,
    tie_spread,
    undecided_order,
    unranked_alternatives,
)
from planner.units import duration, percent

MOST = 6  # alternatives in the table, so that an answer is one screen: the plan file has all
SLOWER = r"^[\d.]+ % (slower: |quicker by prediction, )"


def alternatives_table(plan: Plan) -> Iterator[RenderableType]:
    """The ranked alternatives of a plan; nothing where there are none."""
    goal, ranked, failed = objective_of(plan), ranked_alternatives(plan), unranked_alternatives(plan)
    shown = ranked[: max(1, MOST - len(failed))]
    if not shown and not failed:
        return
    order = undecided_order(plan)
    note = tie_note(plan, order) if any(each.tie for each in shown) else ""
    yield Text.assemble("\nalternatives", (note, "dim"))
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("right", "right", "left", "left"):
        table.add_column(justify=column)
    for number, each in enumerate(shown, 1):
        what = Text(alternative_text(each.tried, plan.made.strategy))
        if each.tried.because:  # the column before says by how much
            what.append(f"; {re.sub(SLOWER, '', each.tried.because)}", style="dim")
        against = f"+{percent(each.change)}" if each.change >= 0 else f"−{percent(-each.change)}"
        tie = " tie" if each.tie else ""
        table.add_row(str(number), goal.formatted(each.tried.value or 0.0), f"{against}{tie}", what)
    for text, verdict, because in failed[: MOST - 1]:
        table.add_row("", "", verdict, Text(text).append(f"; {because}", style="dim"))
    yield table
    left = len(ranked) + len(failed) - len(shown) - len(failed[: MOST - 1])
    if left:
        yield Text(f"… and {left} more in the plan file (alternatives)", style="dim")


def tie_note(plan: Plan, order: UndecidedOrder) -> str:
    """What a tie is, and what it is worth to measure which of them is the best."""
    within = percent(exp(tie_spread(plan)) - 1.0)
    if not order.ties:
        return f"  (tie: within {within}, too close for predictions to tell)"
    cost = f"{order.seconds:.0f} s of steps" if order.seconds >= 1 else f"{duration(order.seconds)} of steps"
    return f"  (ties within {within}: planner profile --settle PLAN, {cost}, worth {percent(order.gain)})"
