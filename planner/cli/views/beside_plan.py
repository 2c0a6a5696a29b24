"""What stands beside a plan, in lines of one screen: the quickest layout, the conventional one, and what was tried and
not chosen, each in what it is another one than the plan.
"""

import re
from collections.abc import Iterator, Mapping
from math import exp

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.plan.descriptions import differing_text
from planner.plan.plan_file import Alternative, Plan
from planner.scoring import (
    UndecidedOrder,
    objective_of,
    ranked_alternatives,
    tie_spread,
    undecided_order,
    unranked_alternatives,
)
from planner.specs.parallelism import Parallelism
from planner.strategies import STRATEGIES
from planner.units import duration, percent

MOST = 6  # alternatives in the table, so that an answer is one screen: the plan file has all
SLOWER = r"^[\d.]+ % (slower: |quicker by prediction, )"


def beside_texts(plan: Plan, name: str) -> Iterator[str]:
    """What the quickest or conventional layout takes, beside the plan, and in what it is another one."""
    beside, goal = getattr(plan.outcome, name), objective_of(plan)
    if beside is None:
        if plan.outcome.quickest:
            yield "no such layout fits"
        return
    changed = layouts_text(plan, beside.layouts)
    if not changed:
        yield "this layout"
        return
    ratio = goal.loss(beside.value) / goal.loss(plan.outcome.value) - 1.0
    yield f"{goal.formatted(beside.value)}, {percent(abs(ratio))} {'slower' if ratio > 0 else 'quicker'}: {changed}"


def layouts_text(plan: Plan, layouts: Mapping[str, Parallelism]) -> str:
    """In what layouts are other ones than the plan's."""
    texts = {name: differing_text(each, plan.layouts[name]) for name, each in layouts.items()}
    several = len(plan.layouts) > 1
    return "; ".join(f"{name} {text}" if several else text for name, text in texts.items() if text)


def alternatives_table(plan: Plan) -> Iterator[RenderableType]:
    """The ranked alternatives of a plan; nothing where there are none."""
    goal, quickest, failed = objective_of(plan), plan.outcome.quickest, unranked_alternatives(plan)
    told = quickest.layouts if quickest else None  # in a row of its own
    ranked = [each for each in ranked_alternatives(plan) if each.tried.layouts != told]
    shown = ranked[: max(1, MOST - len(failed))]
    if not shown and not failed:
        return
    order = undecided_order(plan)
    note = tie_note(plan, order) if any(one.tie for one in shown) else ""
    yield Text.assemble("\nalternatives", (note, "dim"))
    lines = table(">", ">", "", "")
    lines.show_header = False
    for number, ranked_one in enumerate(shown, 1):
        tried = ranked_one.tried
        what = alternative_line(plan, tried, re.sub(SLOWER, "", tried.because))  # the column before says by how much
        against = f"{'+' if ranked_one.change >= 0 else '−'}{percent(abs(ranked_one.change))}"
        tie = " tie" if ranked_one.tie else ""
        lines.add_row(str(number), goal.formatted(tried.value or 0.0), f"{against}{tie}", what)
    for each in failed[: MOST - 1]:
        about = "" if each.tried.about is None else f"≈ {goal.formatted(each.tried.about)}"
        lines.add_row("", about, each.verdict, alternative_line(plan, each.tried, each.because))
    lines.expand, last = True, lines.columns[-1]  # a line each: the plan file has all of it
    last.ratio, last.no_wrap, last.overflow = 1, True, "ellipsis"
    yield lines
    left = len(ranked) + len(failed) - len(shown) - len(failed[: MOST - 1])
    if left:
        yield Text(f"… and {left} more in the plan file (alternatives)", style="dim")


def alternative_line(plan: Plan, tried: Alternative, because: str) -> Text:
    """In what an alternative's layouts differ from the plan's, or its strategy; and why it was not chosen, which of a
    baseline says what it is.
    """
    schedules = (f"schedule {each.schedule}" for each in tried.layouts.values() if each.schedule)
    changed = layouts_text(plan, tried.layouts) or ", ".join(schedules)
    if tried.strategy not in STRATEGIES:
        return Text(because).append(f"; {changed}" * bool(changed), style="dim")
    named = because.startswith(tried.strategy) or (changed and tried.strategy == plan.made.strategy)
    what = ": ".join(filter(None, ["" if named else tried.strategy, changed]))
    return Text(what).append("; " * bool(what and because) + because, style="dim")


def tie_note(plan: Plan, order: UndecidedOrder) -> str:
    """What a tie is, and what is gained by measuring which of them is the best."""
    within = percent(exp(tie_spread(plan)) - 1.0)
    tie = f"tie: within {within}, too close for predictions to tell"
    if not order.ties:
        return f"  ({tie})"
    cost = f"{order.seconds:.0f} s of steps" if order.seconds >= 1 else f"{duration(order.seconds)} of steps"
    return f"  ({tie}; planner profile --settle PLAN measures, {cost}, {percent(order.gain)} to gain)"
