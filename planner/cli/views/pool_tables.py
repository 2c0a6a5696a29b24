"""What a pool gives a run, as lines and as JSON: the best, the cheapest, and the front of time and money."""

from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.json_answers import solve_answer
from planner.cli.views.plain_table import table
from planner.plan.descriptions import fixable_layout
from planner.pools import HEADS, Judged, PoolAnswer, bill_text, notes, point_cells
from planner.scoring import interval_spread


def pool_lines(answer: PoolAnswer, path: Path, page: Path | None = None) -> Iterator[RenderableType]:
    """The best choice with its chance, then the front, then what is not in it."""
    spread = interval_spread(answer.chosen.plan, answer.chosen.plan.prediction.spread)
    low, high = (answer.chosen.bill.days * exp(side * spread) for side in (-1, 1))
    first, *others = answer.solved.told
    yield Text(first, style="bold")
    yield Text(f"{low:,.1f} to {high:,.1f} days (80 % interval)")
    yield from map(Text, others)
    yield Text(f"soonest  {bill_text(answer.soonest)}")
    yield Text(f"cheapest {bill_text(answer.cheapest)}\n")
    yield table(*HEADS, rows=[point_cells(answer.limits, each) for each in answer.points])
    yield Text()
    yield from map(Text, notes(answer.passed, answer.left_out))
    yield Text(f"\nwritten to {path}{f' and {page}' if page else ''}", style="dim")
    yield Text(f"next: planner show {path}", style="dim")


def pool_answer(answer: PoolAnswer, path: Path) -> dict[str, Any]:
    """The answer about the chosen plan, with the choices."""
    return {
        **solve_answer(answer.solved, path),
        "tokens_of_run": answer.run.tokens,
        "chosen": answer.chosen.offer.offered.name,
        "soonest": answer.soonest.offer.offered.name,
        "cheapest": answer.cheapest.offer.offered.name,
        "chance": answer.chance,
        "pareto": [point_answer(each) for each in answer.points],
        "passed_over": [
            {
                "choice": each.tariff.offer.offered.name,
                "days_at_least": each.least.days,
                "usd_at_least": each.least.usd,
                "dominated_by": each.by and each.by.offer.offered.name,
            }
            for each in answer.passed
        ],
        "left_out": [{"what": each.what, "because": each.because} for each in answer.left_out],
    }


def point_answer(judged: Judged) -> dict[str, Any]:
    """One point; `dominated_by`: null where it is of the front."""
    point, by = judged
    offered, lost = point.offer.offered, point.tariff.downtime
    return {
        "choice": offered.name,
        "kind": "+".join(offered.kinds),
        "gpus": offered.cluster.size,
        "region": offered.region or None,
        "spot": offered.node_hours is not None,
        "usd_per_hour": offered.usd_per_hour,
        "layouts": {name: fixable_layout(layout) for name, layout in point.plan.layouts.items()},
        "step_seconds": point.bill.step_seconds,
        "bound_seconds": point.least.step_seconds,
        "spread": interval_spread(point.plan, point.plan.prediction.spread),
        "days": point.bill.days,
        "usd": point.bill.usd,
        "downtime": lost.share,
        "downtime_of_spot": lost.spot_share,
        "checkpoint_every_s": lost.every_s,
        "dominated_by": by and by.offer.offered.name,
    }
