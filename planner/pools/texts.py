"""What screens and pages say of a pool's answer, in the same words."""

from collections.abc import Iterable, Iterator

from planner.plan.plan_file import Layout
from planner.pools.bills import chance_within
from planner.pools.search import Judged, Passed, Point
from planner.specs.job import Limits
from planner.specs.offers import LeftOut
from planner.specs.run_length import Run
from planner.units import percent, plural, scaled

HEADS = ("", ">days", ">dollars", ">chance", ">step", ">gap", ">down", "layout")
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "dp", "zero", "micro_batch")


def question_text(run: Run, limits: Limits) -> str:
    """What was asked: `1T tokens for $2,000,000 within 30 days`."""
    budget = f" for ${limits.usd:,.0f}" if limits.usd else ""
    unit = "day" if limits.days == 1 else "days"
    return f"{scaled(run.tokens)} tokens{budget}{f' within {limits.days:g} {unit}' if limits.days else ''}"


def bill_text(point: Point) -> str:
    """`20.6 days and $217,429 on 64xh100-80gb`."""
    bill = point.bill
    return f"{bill.days:,.1f} days and ${bill.usd:,.0f} on {point.offer.offered.name}"


def run_lines(chosen: Point, run: Run, limits: Limits) -> tuple[str, ...]:
    """What a whole run takes, by the plan of its step."""
    kept = chance_within(chosen.bill, chosen.plan, limits)
    chance = f"; {percent(kept)} chance to keep the limits" if limits.days or limits.usd else ""
    return (
        f"{question_text(run, limits)}: {bill_text(chosen)}, simulated{chance}",
        f"downtime {downtime_text(chosen)}",
        *fewest_note(limits),
    )


def fewest_note(limits: Limits) -> Iterator[str]:
    """Yield what the cheapest means where there is no deadline."""
    if limits.days is None:
        what = "without a deadline the cheapest is nearly always the fewest GPUs that hold the model"
        yield f"{what}: --days, or limits.days, asks for the cheapest that is in time"


def point_cells(limits: Limits, judged: Judged) -> tuple[str, ...]:
    """The cells of a point under `HEADS`."""
    point, by = judged
    bill, plan = point.bill, point.plan
    layouts = "; ".join(map(degrees_text, plan.layouts.values()))
    return (
        point.offer.offered.name,
        f"{bill.days:,.1f}",
        f"${bill.usd:,.0f}",
        percent(chance_within(bill, plan, limits)) if limits.days or limits.usd else "",
        f"{bill.step_seconds:.2f} s",
        percent(bill.days / point.least.days - 1.0) if point.least.days else "",
        percent(point.tariff.downtime.share),
        f"dominated by {by.offer.offered.name}" if by else layouts,
    )


def degrees_text(layout: Layout) -> str:
    """The degrees of a layout above one, and its ZeRO stage: `tp 4, pp 4, dp 4, zero 1`."""
    named = {name: getattr(layout, name) for name in DEGREES}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value > 1 or name == "zero")


def downtime_text(point: Point) -> str:
    """What a run loses, and how often it writes a checkpoint."""
    lost = point.tariff.downtime
    spot = f", {percent(lost.spot_share)} of it as nodes are taken away" if lost.spot_share else ""
    every = f"a checkpoint every {lost.every_s / 60:,.1f} min takes {lost.checkpoint_s:.1f} s" if lost.every_s else ""
    between = f"an interruption every {lost.between_s / 3600:,.1f} h takes {lost.restart_s:,.0f} s and what is since"
    return f"{percent(lost.share)} of the days{spot}: {between}{'; ' * bool(every)}{every}"


def notes(passed: Iterable[Passed], left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Lines of what the front does not show: what was passed over, or is no choice."""
    dominated = [each.tariff.offer.offered.name for each in passed if each.by]
    beyond = [each.tariff.offer.offered.name for each in passed if not each.by]
    if dominated:
        yield f"{plural(len(dominated), 'choice')} not solved, by a bound dominated: {', '.join(dominated)}"
    if beyond:
        yield f"{plural(len(beyond), 'choice')} beyond the limits, by a bound or solved: {', '.join(beyond)}"
    for what, because in left_out:
        yield f"{what} is left out: {because}"
