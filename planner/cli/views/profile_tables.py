"""Tables of a measured profile: fits of a module's passes, the activations it keeps, and the collectives.

A column has one unit; a term that a fit does not have is left blank.
"""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.specs.hardware.profile import CollectiveCosts, DeviceShares, ModuleCosts, PassCosts, PassFit, Profile
from planner.units import percent, plural

GATHERED = {"held": "gathered once", "resharded": "gathered in each pass"}  # ZeRO-1 and 2; ZeRO-3
EMBEDDING_HEAD = "embedding, head"
LEGEND = (
    "a pass takes ms + µs·Σs + ns·Σs²: Σs are the tokens of all its sequences, Σs² the sum of their squares;\n"
    "spread: half-width of the 80 % interval; held out: median error on measurements left out of the fit"
)


def profile_tables(profile: Profile, path: Path) -> Iterator[RenderableType]:
    yield Text(f"measured on {profile.provenance.machine}")
    for name, costs in profile.modules.items():
        yield pass_table(name, costs)
        if costs.fsdp:
            yield fsdp_table(costs)
        yield activation_table(costs)
    yield Text(f"\n{LEGEND}", style="dim")
    if profile.collectives:
        yield collective_table(profile.collectives)
    if profile.shares:
        yield shares_table(profile.shares)
    yield Text(f"\nwritten to {path}", style="dim")


def shares_table(shares: DeviceShares) -> RenderableType:
    """What modules take that share the device, and pairs as they were timed."""
    rows = table("side by side", ">shares", ">alone ms", ">together ms", ">passes a second")
    for pair in shares.pairs:
        alone, together = (" + ".join(f"{each:.4g}" for each in of) for of in (pair.alone_ms, pair.ms))
        halves = " + ".join(f"{each:g}" for each in pair.shares)
        rows.add_row(" and ".join(pair.modules), halves, alone, together, f"{pair.gain:.2f} ×")
    held = "" if shares.holdout_error is None else f", {percent(shares.holdout_error)} off at most on a pair held out"
    constants = (
        f"κ {shares.kappa:.3g}, γ {shares.gamma:.3g}{held}; {plural(shares.launch_threads, 'thread')} can launch"
    )
    bound = ", ".join(f"{name} {percent(share)}" for name, share in shares.memory_shares.items())
    return Stack(
        Text("\nshares of the device", style="bold"), rows, Text(f"{constants}\nbound by memory: {bound}", style="dim")
    )


def pass_table(name: str, costs: ModuleCosts) -> RenderableType:
    """Passes of a layer, of embedding and head, and of a layer that is recomputed."""
    rows = table("pass", ">ms", ">µs·Σs", ">ns·Σs²", ">spread", ">held out")
    for what, fit, error in named_fits(costs):
        rows.add_row(what, *terms(fit), percent(costs.spread), "" if error is None else percent(error))
    return Stack(Text(f"\n{name}", style="bold"), rows)


def named_fits(costs: ModuleCosts) -> Iterator[tuple[str, PassFit, float | None]]:
    """Each fit with its name and its median error on held-out measurements."""
    by_part: dict[str, PassCosts] = {"layer": costs.layer}
    if costs.ends:
        by_part[EMBEDDING_HEAD] = costs.ends
    for part, timed in by_part.items():
        for what, fit in (("forward", timed.forward), ("backward", timed.backward)):
            if fit:
                yield f"{part_name(part, timed)} {what}", fit, timed.holdout_error
    for how, recomputed in costs.recomputing.items():
        if recomputed.backward:
            yield (
                f"{part_name('layer', recomputed)} backward, recompute {how}",
                recomputed.backward,
                recomputed.holdout_error,
            )


def part_name(part: str, of: PassCosts) -> str:
    return part if of.layers == 1 else f"{of.layers} {part}s"


def fsdp_table(costs: ModuleCosts) -> RenderableType:
    """Time that FSDP2 adds to the passes of a layer and of embedding and head, besides its communication."""
    rows = table("FSDP2 adds to a pass", ">forward ms", ">backward ms")
    for how, units in costs.fsdp.items():
        for part, unit in (("layer", units.layer), (EMBEDDING_HEAD, units.ends)):
            rows.add_row(f"{part}, {GATHERED[how]}", f"{unit.forward_ms:.3f}", f"{unit.backward_ms:.3f}")
    return Stack(Text(), rows)


def terms(fit: PassFit) -> tuple[str, str, str]:
    """Terms in ms, µs per token and ns per squared token; one that rounds to zero is left blank."""
    shown = (f"{value:.3f}" for value in (fit.ms, fit.ms_per_token * 1e3, fit.ms_per_token2 * 1e6))
    ms, linear, squared = ("" if float(text) == 0 else text for text in shown)
    return ms, linear, squared


def activation_table(costs: ModuleCosts) -> RenderableType:
    """Activations kept from forward to backward for each kind of recomputation; and the optimizer's time."""
    rows = table("kept for backward", ">KiB per token and layer")
    rows.add_row("everything", f"{costs.layer.activation_kib_per_token:.2f}")
    for how, recomputed in costs.recomputing.items():
        rows.add_row(f"recompute {how}", f"{recomputed.activation_kib_per_token:.2f}")
    return Stack(Text(), rows, Text(f"\nupdate: {costs.update_ns_per_parameter:.4g} ns per parameter"))


def collective_table(measured: dict[str, CollectiveCosts]) -> RenderableType:
    """Latency and bandwidth of each collective."""
    rows = table("collective", ">ranks", ">µs", ">+ bytes at GB/s", ">spread")
    for kind, collective in measured.items():
        for point in collective.points:
            numbers = (str(point.ranks), f"{point.latency_us:.0f}", f"{point.gb_per_s:.2f}")
            rows.add_row(kind, *numbers, percent(collective.spread))
    return Stack(Text(), rows)
