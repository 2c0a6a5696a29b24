"""What `planner profile` answers with: the fits of a module's passes, what it keeps, and the collectives.

A column has one unit, and a row the terms that it has.
"""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.tables import table
from planner.specs.profile import Collective, Fit, ModuleCosts, Passes, Profile
from planner.units import percent

GATHERED = {"held": "gathered once", "resharded": "gathered in each pass"}  # by ZeRO-1 and 2, by ZeRO-3
LEGEND = (
    "a pass takes ms + µs·Σs + ns·Σs²: Σs are the tokens of all its sequences, Σs² the sum of their squares;\n"
    "spread: half of the 80 % interval; missed: measurements that were left out of the fit (median)"
)


def profiled(profile: Profile, path: Path) -> Iterator[RenderableType]:
    yield Text(f"measured on {profile.provenance.machine}")
    for name, costs in profile.modules.items():
        yield passes(name, costs)
        if costs.fsdp:
            yield fsdp(costs)
        yield kept(costs)
    yield Text(f"\n{LEGEND}", style="dim")
    if profile.collectives:
        yield collectives(profile.collectives)
    yield Text(f"\nwritten to {path}", style="dim")


def passes(name: str, costs: ModuleCosts) -> RenderableType:
    """Of a layer, of the ends, and of a layer that is made again."""
    rows = table("pass", ">ms", ">µs·Σs", ">ns·Σs²", ">spread", ">missed")
    for what, fit, error in fits(costs):
        rows.add_row(what, *terms(fit), percent(costs.spread), "" if error is None else percent(error))
    return Stack(Text(f"\n{name}", style="bold"), rows)


def fits(costs: ModuleCosts) -> Iterator[tuple[str, Fit, float | None]]:
    """Each with the error on what was left out."""
    found: dict[str, Passes] = {"layer": costs.layer}
    if costs.ends:
        found["ends"] = costs.ends
    for part, of in found.items():
        for what, fit in (("forward", of.forward), ("backward", of.backward)):
            if fit:
                yield f"{counted(part, of)} {what}", fit, of.holdout_error
    for how, made in costs.recomputing.items():
        if made.backward:
            yield f"{counted('layer', made)} backward, recompute {how}", made.backward, made.holdout_error


def counted(part: str, of: Passes) -> str:
    return part if of.layers == 1 else f"{of.layers} {part}s"


def fsdp(costs: ModuleCosts) -> RenderableType:
    """To the passes of a layer and of the ends, beside what it sends."""
    rows = table("FSDP2 adds to a pass", ">forward ms", ">backward ms")
    for how, units in costs.fsdp.items():
        for part, unit in (("layer", units.layer), ("ends", units.ends)):
            rows.add_row(f"{part}, {GATHERED[how]}", f"{unit.forward_ms:.3f}", f"{unit.backward_ms:.3f}")
    return Stack(Text(), rows)


def terms(fit: Fit) -> tuple[str, str, str]:
    """In ms, µs a token and ns a squared token; a term that rounds to nothing is left out."""
    shown = (f"{value:.3f}" for value in (fit.ms, fit.ms_per_token * 1e3, fit.ms_per_token2 * 1e6))
    ms, linear, squared = ("" if float(text) == 0 else text for text in shown)
    return ms, linear, squared


def kept(costs: ModuleCosts) -> RenderableType:
    """From forward to backward, by what is made again; and the optimizer."""
    rows = table("kept for backward", ">KiB a token and layer")
    rows.add_row("everything", f"{costs.layer.activation_kib_per_token:.2f}")
    for how, made in costs.recomputing.items():
        rows.add_row(f"recompute {how}", f"{made.activation_kib_per_token:.2f}")
    return Stack(Text(), rows, Text(f"\nupdate: {costs.update_ns_per_parameter:.2f} ns a parameter"))


def collectives(measured: dict[str, Collective]) -> RenderableType:
    """Each takes its latency, and its bytes at its rate."""
    rows = table("collective", ">ranks", ">µs", ">+ bytes at GB/s", ">spread")
    for kind, collective in measured.items():
        for point in collective.points:
            numbers = (str(point.ranks), f"{point.latency_us:.0f}", f"{point.gb_per_s:.2f}")
            rows.add_row(kind, *numbers, percent(collective.spread))
    return Stack(Text(), rows)
