"""What `predict` and `fits` answer with: tables for people, and one JSON object each."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.tables import gib_text, table
from planner.costs.memory.footprint import Footprint
from planner.costs.objective import STEP_SECONDS
from planner.plan.model import Plan
from planner.plan.words import layout_text, work_text
from planner.strategies.static.change import Change
from planner.strategies.static.fitting import Fits, StageUse
from planner.strategies.static.predicted import Predicted
from planner.units import GIB, duration, percent, plural
from planner.verify.answer import Answer, answer
from planner.verify.worth import objective_of, samples

LEAST = 5e-4  # of the step: less is 0.0 %
TOLD = 0.01  # of the step: what simulating adds is explained
SIMULATED = (
    "the parts are of equal sequences, shared out evenly; the simulation has them as they are: ranks and stages wait "
    "for those with more tokens or layers"
)
COLUMNS = 4  # stages in a table: what more there are is in the JSON


def predicted(found: Predicted) -> Iterator[RenderableType]:
    """Seconds, their parts, memory, and on whose word."""
    said, ranks = answer(found.plan, found.scores), found.plan.size
    seconds, memory = said["step_seconds"], said["memory"]
    low, high = (duration(each) for each in said["interval_seconds"])
    for name, layout in found.plan.layouts.items():
        of_module = f"  of {name}" if len(found.plan.layouts) > 1 else ""
        yield Text.assemble((layout_text(layout), "bold"), f"{of_module}  on {plural(len(layout.ranks), 'rank')}")
    if len(found.plan.layouts) > 1:
        yield Text("; ".join([work_text(found.plan), *left_out(found.plan)]))
    closed = f"; closed form {duration(found.closed_seconds)}" if found.closed_seconds else ""
    yield Text.assemble("step ", (duration(seconds), "bold"), f" simulated, {low} to {high} (80 % interval){closed}")
    rate, goal = said["tokens_per_second"], objective_of(found.plan)
    worth = "" if said["objective"] == STEP_SECONDS else f"{goal.said(said['value'])}, "
    of = f" of {' and '.join(samples(found.plan))}" if len(found.plan.layouts) > 1 else ""
    yield Text(f"{worth}{rate:,.0f} tokens/s{of}, {rate / ranks:,.0f} a rank, MFU {percent(said['mfu'])}\n")
    yield parts(found, seconds)
    if found.closed_seconds and abs(seconds - found.closed_seconds) >= TOLD * seconds:
        yield Text(SIMULATED, style="dim")
    used, allowed = gib_text(memory["peak_gib"] * GIB), gib_text(memory["allowed_gib"] * GIB)
    verdict = f"{percent(memory['chance'])} chance of running out"
    yield Text(f"\nmemory: {used} with context and buffers on the fullest rank, {allowed} allowed, {verdict}\n")
    rests = table("", "rests on", "")
    for what, source in found.sources.items():
        rests.add_row("", what, source)
    yield rests


def left_out(plan: Plan) -> Iterator[str]:
    for name, items in plan.uses.left_out.items():
        yield f"{plural(len(items), 'item')} of {name} left out, as who reads them was dropped, or has no room"


def parts(found: Predicted, seconds: float) -> RenderableType:
    """Seconds by what they are of, and what simulating adds to a closed form; parts of nothing are left out."""
    rows = table("part", ">seconds", ">share")
    rest = {"simulation adds": seconds - found.closed_seconds} if found.closed_seconds else {}
    for name, each in {**found.parts, **rest}.items():
        if abs(each) >= LEAST * seconds:
            rows.add_row(name, duration(each), percent(each / seconds))
    return rows


def predicted_summary(found: Predicted) -> Answer:
    return {
        **answer(found.plan, found.scores),
        "ranks": found.plan.size,
        "closed_form_seconds": found.closed_seconds,
        "parts": found.parts,
        "sources": found.sources,
    }


# ------------------------------------------------------------------------------------------------------------- fits


def fits(found: Fits) -> Iterator[RenderableType]:
    """Yes or no, who uses what, and what would fit."""
    word, style = ("fits", "bold green") if found.yes else ("does not fit", "bold red")
    fullest, each = found.fullest, found.plan.layouts.items()
    layouts = " and ".join(
        f"{name} {layout_text(layout)}" if len(each) > 1 else layout_text(layout) for name, layout in each
    )
    chance = f"{percent(fullest.chance)} chance of running out of memory, on {stage_text(found, fullest)}"
    yield Text.assemble((layouts, "bold"), " ", (word, style), f" into {found.device}: {chance}\n")
    yield uses(found)
    if not found.yes:
        yield Text(f"\n{what_fits(found)}")


def uses(found: Fits) -> RenderableType:
    """Bytes of each kind on the stages that differ most: first ones, the fullest, the last."""
    shown = columns(found)
    heading = "on one rank of" if len(found.plan.layouts) == 1 else "on one rank of stages"
    rows = table(heading, *(f">{stage_text(found, use)}" for use in shown))
    for field in fields(Footprint):
        held = [float(getattr(use.taken, field.name)) for use in shown]
        if any(held):
            rows.add_row(field.name, *map(gib_text, held))
    rows.add_row("most at once", *(gib_text(float(use.taken.total)) for use in shown), style="bold")
    rows.add_row("allowed", *(gib_text(use.allowed) for use in shown))
    rows.add_row("of the device", *(gib_text(found.device_bytes) for _ in shown))
    rows.add_row("chance of running out", *(percent(use.chance) for use in shown))
    return rows


def stage_text(found: Fits, use: StageUse) -> str:
    """`stage 1`; of several modules `llm 1, vit 0`: which stage of each a rank holds."""
    if len(found.plan.layouts) == 1:
        return f"stage {use.stage}"
    return ", ".join(
        f"{name} {stage}" if found.plan.layouts[name].pp > 1 else name for name, stage in use.holds.items()
    )


def columns(found: Fits) -> list[StageUse]:
    last = len(found.stages) - 1
    return [found.stages[stage] for stage in sorted({0, min(1, last), found.fullest.stage, last})][:COLUMNS]


def what_fits(found: Fits) -> str:
    """The smallest change, with what it takes."""
    change: Change | None = found.change
    if change is None:
        return "nothing that was looked at fits: more ranks, shorter sequences, or another layout"
    used = f"{gib_text(change.taken)}, {duration(change.seconds)} a step by the closed form"
    return f"the smallest change that fits: {', '.join(change.what)} ({used})"


def gib(taken: Footprint) -> dict[str, float]:
    parts = {name: float(size) / GIB for name, size in asdict(taken).items()}
    return {**parts, "total": float(taken.total) / GIB}


def fits_summary(found: Fits) -> dict[str, Any]:
    """Sizes in GiB."""
    change = found.change
    return {
        **answer(found.plan, found.scores),
        "fits": found.yes,
        "device": found.device,
        "device_gib": found.device_bytes / GIB,
        "fullest": found.fullest.stage,
        "stages": [
            {
                "stage": use.stage,
                "holds": use.holds,
                "chance": use.chance,
                "allowed_gib": use.allowed / GIB,
                **gib(use.taken),
            }
            for use in found.stages
        ],
        "change": change and {"what": [*change.what], "step_seconds": change.seconds, "total": change.taken / GIB},
    }
