"""What `predict` and `fits` answer with: tables for people, and one JSON object each."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.tables import gib_text, table
from planner.costs.static.footprint import Footprint
from planner.strategies.static.change import Change
from planner.strategies.static.fitting import Fits, StageUse
from planner.strategies.static.predicted import Predicted
from planner.units import GIB, duration, percent

LEAST = 5e-4  # of the step: less is 0.0 %
TOLD = 0.01  # of the step: what simulating adds is explained
SIMULATED = (
    "the parts are of equal sequences, shared out evenly; the simulation has them as they are: ranks and stages wait "
    "for those with more tokens or layers"
)
COLUMNS = 4  # stages in a table: what more there are is in the JSON


def predicted(found: Predicted) -> Iterator[RenderableType]:
    """Seconds, their parts, memory, and on whose word."""
    low, high = (duration(seconds) for seconds in found.interval)
    yield Text.assemble((found.layout, "bold"), f"  on {found.ranks} ranks")
    yield Text.assemble(
        "step ",
        (duration(found.seconds), "bold"),
        f" simulated, {low} to {high} (80 % interval); closed form {duration(found.closed_seconds)}",
    )
    yield Text(
        f"{found.tokens_per_second:,.0f} tokens/s, {found.tokens_per_second / found.ranks:,.0f} a rank, "
        f"MFU {percent(found.mfu)}\n"
    )
    yield parts(found)
    yield from remainder(found)
    verdict = f"{percent(found.chance)} chance of running out"
    used, allowed = gib_text(float(found.memory.total)), gib_text(found.allowed)
    counted = "with context and buffers"
    yield Text(f"\nmemory: {used} {counted} on stage {found.stage}, {allowed} allowed, {verdict}\n")
    rests = table("", "rests on", "")
    for what, source in found.sources.items():
        rests.add_row("", what, source)
    yield rests


def parts(found: Predicted) -> RenderableType:
    """Seconds of the closed form by what they are of, and what simulating adds; parts of nothing are left out."""
    rows = table("part", ">seconds", ">share")
    rest = found.seconds - found.closed_seconds
    for name, seconds in {**found.parts, "simulation adds": rest}.items():
        if abs(seconds) >= LEAST * found.seconds:
            rows.add_row(name, duration(seconds), percent(seconds / found.seconds))
    return rows


def remainder(found: Predicted) -> Iterator[RenderableType]:
    """What it is that only the simulation sees, where it is worth a word."""
    if abs(found.seconds - found.closed_seconds) >= TOLD * found.seconds:
        yield Text(SIMULATED, style="dim")


def predicted_summary(found: Predicted) -> dict[str, Any]:
    low, high = found.interval
    return {
        "layout": found.layout,
        "ranks": found.ranks,
        "step_seconds": found.seconds,
        "spread": found.spread,
        "interval": [low, high],
        "closed_form_seconds": found.closed_seconds,
        "parts": found.parts,
        "tokens": found.tokens,
        "tokens_per_second": found.tokens_per_second,
        "mfu": found.mfu,
        "memory": {**gib(found.memory), "stage": found.stage, "allowed": found.allowed / GIB, "chance": found.chance},
        "sources": found.sources,
    }


# ------------------------------------------------------------------------------------------------------------- fits


def fits(found: Fits) -> Iterator[RenderableType]:
    """Yes or no, who uses what, and what would fit."""
    word, style = ("fits", "bold green") if found.yes else ("does not fit", "bold red")
    yield Text.assemble(
        (found.layout, "bold"),
        " ",
        (word, style),
        f" into {found.device}: {percent(found.chance)} chance of running out of memory, on stage {found.fullest}\n",
    )
    yield uses(found)
    if not found.yes:
        yield Text(f"\n{what_fits(found.change)}")


def uses(found: Fits) -> RenderableType:
    """Bytes of each kind on the stages that differ most: first ones, the fullest, the last."""
    shown = columns(found)
    rows = table("on one rank of", *(f">stage {use.stage}" for use in shown))
    for field in fields(Footprint):
        held = [float(getattr(use.taken, field.name)) for use in shown]
        if any(held):
            rows.add_row(field.name, *map(gib_text, held))
    rows.add_row("most at once", *(gib_text(float(use.taken.total)) for use in shown), style="bold")
    rows.add_row("margin", *(gib_text(found.margin_bytes) for _ in shown))
    rows.add_row("of the device", *(gib_text(found.device_bytes) for _ in shown))
    rows.add_row("chance of running out", *(percent(use.chance) for use in shown))
    return rows


def columns(found: Fits) -> list[StageUse]:
    last = len(found.stages) - 1
    return [found.stages[stage] for stage in sorted({0, min(1, last), found.fullest, last})][:COLUMNS]


def what_fits(change: Change | None) -> str:
    """The smallest change, with what it takes."""
    if change is None:
        return "no layout of this model on these ranks fits: more ranks, or shorter sequences"
    used = f"{gib_text(change.taken)}, {duration(change.seconds)} a step by the closed form"
    return f"the smallest change that fits: {', '.join(change.what)} ({used})"


def gib(taken: Footprint) -> dict[str, float]:
    parts = {name: float(size) / GIB for name, size in asdict(taken).items()}
    return {**parts, "total": float(taken.total) / GIB}


def fits_summary(found: Fits) -> dict[str, Any]:
    """Sizes in GiB."""
    change = found.change
    return {
        "layout": found.layout,
        "fits": found.yes,
        "chance": found.chance,
        "device": found.device,
        "device_gib": found.device_bytes / GIB,
        "margin": found.margin_bytes / GIB,
        "fullest": found.fullest,
        "stages": [{"stage": use.stage, "chance": use.chance, **gib(use.taken)} for use in found.stages],
        "change": change and {"what": [*change.what], "step_seconds": change.seconds, "total": change.taken / GIB},
    }
