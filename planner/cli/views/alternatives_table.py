"""What else was tried, as a ranked table: the best first, ties called ties, impossible ones last and merged."""

import re
from collections.abc import Iterator
from math import exp

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from planner.plan.descriptions import alternative_text
from planner.plan.plan_file import Alternative, Plan
from planner.scoring import (
    impossible_alternatives,
    objective_of,
    ranked_alternatives,
    tie_spread,
    undecided_order,
)
from planner.units import percent

MOST = 7  # alternatives in the table, so that an answer is one screen: the plan file has all
SLOWER = r"^[\d.]+ % slower: "


def alternatives_table(plan: Plan) -> Iterator[RenderableType]:
    """The ranked alternatives of a plan; nothing where there are none."""
    goal, ranked, failed = objective_of(plan), ranked_alternatives(plan), impossible_alternatives(plan)
    shown = ranked[: max(1, MOST - len(failed))]
    if not shown and not failed:
        return
    yield Text.assemble("\nalternatives", (tie_note(plan) if any(each.tie for each in shown) else "", "dim"))
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
    for text, because in failed[: MOST - 1]:
        table.add_row("", "", "impossible", Text(text).append(f"; {because}", style="dim"))
    yield table
    left = len(ranked) + len(failed) - len(shown) - len(failed[: MOST - 1])
    if left:
        yield Text(f"… and {left} more in the plan file (alternatives)", style="dim")


def tie_note(plan: Plan) -> str:
    """What a tie is, and what it is worth to measure which of them is the best."""
    within, order = percent(exp(tie_spread(plan)) - 1.0), undecided_order(plan)
    if not order.ties:
        return f"  (tie: within {within}, too close for predictions to tell)"
    surest = ranked_place(plan, order.surest)
    sure = f"; surest, by the upper ends of intervals: {surest}" if surest else ""
    return f"  (ties within {within}: planner profile --settle PLAN, worth {percent(order.gain)}{sure})"


def ranked_place(plan: Plan, tried: Alternative | None) -> int:
    """The number of an alternative in the table; 0 of none."""
    return next((place for place, each in enumerate(ranked_alternatives(plan), 1) if each.tried == tried), 0)
