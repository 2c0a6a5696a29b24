"""Memory by rank as bars: what is there all the time, what activations add at the peak, what the device allows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.canvas import NOTHING, Canvas, Cell, labels, line
from planner.plan.model import Plan
from planner.specs.base import Ranks
from planner.specs.cluster import kind_of
from planner.units import GIB
from planner.verify.held import allowed_on
from planner.verify.score import Score

SHOWN = 8  # lines
WIDEST, NARROWEST = 40, 4  # columns
TIGHT = 0.9  # of what is allowed
SMALL = 0.1  # GiB: less is said in MiB


class Bar(NamedTuple):
    """Of ranks that hold alike, in GiB to four digits: a tenth of a MiB."""

    states: float
    peak: float
    cap: float


def memory(shown: Plan, scores: Sequence[Score], canvas: Canvas) -> RenderableType:
    """The fullest ranks, in order; those whose bars look alike have one."""
    found = bars(shown, scores)
    for wide in range(WIDEST, NARROWEST - 1, -1):  # as wide as fits beside the words
        drawn, hidden = lines(found, wide, canvas)
        if max(map(len, drawn)) <= canvas.width:
            break
    if hidden:
        drawn.append(Text(f"… {hidden} more hold less", style="dim"))
    limit = shown.uses.limits.tokens_per_rank
    own = f"; the job's own limit is {limit:,} tokens a rank" if limit else ""
    what = f"peak memory by rank, simulated: █ states ▓ activations · free, of what the device allows{own}"
    return Stack(Text(), *drawn, Text(what, style="dim"))


def lines(found: Mapping[Bar, Ranks], wide: int, canvas: Canvas) -> tuple[list[Text], int]:
    """Bars of this width with their words, and how many more there would be."""
    scale = max(max(bar.peak, bar.cap) for bar in found) / wide
    looks: dict[tuple[float, tuple[Cell, ...]], list[Bar]] = {}
    for bar in found:
        looks.setdefault((bar.cap, tuple(painted(bar, scale, wide))), []).append(bar)
    fullest = sorted(looks, key=lambda look: -max(map(share, looks[look])))[:SHOWN]
    kept = [look for look in looks if look in fullest]
    names = labels([Ranks(sorted(rank for bar in looks[look] for rank in found[bar])) for look in kept], canvas)
    drawn = [line(look[1], name).append(said(looks[look], canvas)) for look, name in zip(kept, names, strict=True)]
    return drawn, len(looks) - len(kept)


def said(alike: Sequence[Bar], canvas: Canvas) -> str:
    """`27.48-28.04 of 36.04 GiB`, or `20.5 MiB of 1.38 GiB`; on a narrow canvas the most alone."""
    least, most = min(bar.peak for bar in alike), max(bar.peak for bar in alike)
    if most < SMALL:
        return f" {most * 1024:.1f} MiB{'' if canvas.narrow else f' of {alike[0].cap:.2f} GiB'}"
    peak = f"{most:.2f}" if canvas.narrow or f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f}-{most:.2f}"
    return f" {peak} of {alike[0].cap:.2f}{'' if canvas.narrow else ' GiB'}"


def bars(shown: Plan, scores: Sequence[Score]) -> dict[Bar, Ranks]:
    """The highest peak over all steps; bars by their first rank."""
    holding, cluster = scores[0].holding, shown.uses.cluster
    found: dict[Bar, list[int]] = {}
    caps = {kind: allowed_on(shown, kind) / GIB for kind in shown.uses.devices}
    peaks = [max(of_rank) / GIB for of_rank in zip(*(score.memory.peaks for score in scores), strict=True)]
    for rank, peak in enumerate(peaks):
        bar = Bar(round(holding.always(rank) / GIB, 4), round(peak, 4), round(caps[kind_of(cluster, rank)], 2))
        found.setdefault(bar, []).append(rank)
    return {bar: Ranks(ranks) for bar, ranks in found.items()}


def share(bar: Bar) -> float:
    """Of what is allowed."""
    return bar.peak / bar.cap if bar.cap > 0 else float("inf")


def painted(bar: Bar, scale: float, wide: int) -> list[Cell]:
    """What is beyond the cap is marked `!`."""
    colour = "red" if share(bar) > 1 else "yellow" if share(bar) > TIGHT else "green"
    states, peak, cap = (round(max(0.0, gib) / scale) for gib in bar)
    cells: list[Cell] = [("█" if at < states else "▓", colour) for at in range(min(peak, cap))]
    cells += [("!", "bold red")] * max(0, peak - cap)
    cells += [NOTHING] * max(0, cap - peak)
    return [*cells, *[(" ", "")] * (wide - len(cells))]
