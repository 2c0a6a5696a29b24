"""What the runs of tied layouts took, as a table and as JSON."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.scoring import SETTLING_ROUNDS
from planner.units import duration, percent
from planner.workflows.settling import MeasuredContender, SettledOrder


def settling_tables(order: SettledOrder) -> Iterator[RenderableType]:
    """Every contender, the quickest first, and what follows from it."""
    best = order.measured[0]
    shown = table("", ">predicted", ">measured", f">its {SETTLING_ROUNDS} runs", "")
    for measured in order.measured:
        change = measured.measured_seconds / best.measured_seconds - 1.0
        shown.add_row(
            measured.contender.path.name,
            duration(measured.predicted_seconds),
            duration(measured.measured_seconds),
            f"{duration(min(measured.seconds))} to {duration(max(measured.seconds))}",
            Text.assemble((f"+{percent(change)}  " if change else "", "bold"), measured.contender.text),
        )
    yield shown
    yield Text(verdict(order), style="bold green" if order.is_clear else "yellow")
    yield Text(f"planner run {best.contender.path}", no_wrap=True)


def verdict(order: SettledOrder) -> str:
    """A sentence: whether every run of the best was quicker than those of the others."""
    best = order.measured[0].contender.path
    if order.is_clear:
        return f"settled: every run of {best} was quicker than all of the others"
    return f"still a tie on this machine: runs of others were as quick as some of {best}"


def settling_answer(order: SettledOrder) -> dict[str, Any]:
    """The JSON answer of `planner profile --settle`."""
    return {
        "settled": order.is_clear,
        "best": str(order.measured[0].contender.path),
        "contenders": [contender_answer(measured) for measured in order.measured],
    }


def contender_answer(measured: MeasuredContender) -> dict[str, Any]:
    return {
        "plan": str(measured.contender.path),
        "layouts": measured.contender.text,
        "predicted_seconds": measured.predicted_seconds,
        "measured_seconds": measured.measured_seconds,
        "runs": [*measured.seconds],
    }
