"""Draws peak memory by rank as bars: states, activations at the peak, and what the device allows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.canvas import NOTHING, Canvas, Cell, cell_line, rank_labels
from planner.plan.plan_file import Plan
from planner.scoring import Score, allowed_bytes_on
from planner.specs.base import Ranks
from planner.specs.hardware.cluster import device_of_rank
from planner.units import GIB

SHOWN = 8  # lines
WIDEST, NARROWEST = 40, 4  # columns
TIGHT = 0.9  # share of what is allowed
SMALL = 0.1  # GiB: less is printed in MiB


class MemoryBar(NamedTuple):
    """Memory of ranks that hold the same, in GiB rounded to a tenth of a MiB."""

    states: float
    peak: float
    cap: float


def memory_bars(plan: Plan, scores: Sequence[Score], canvas: Canvas) -> RenderableType:
    """Draw a bar for each of the fullest ranks, by rank; ranks whose bars look the same share one."""
    by_bar = bars_by_ranks(plan, scores)
    for width in range(WIDEST, NARROWEST - 1, -1):  # as wide as fits beside the text
        drawn, hidden = lines(by_bar, width, canvas)
        if max(map(len, drawn)) <= canvas.width:
            break
    if hidden:
        drawn.append(Text(f"… {hidden} more, less full", style="dim"))
    limit = plan.uses.limits.tokens_per_rank
    token_limit = f"; the job's own limit is {limit:,} tokens a rank" if limit else ""
    legend = f"peak memory by rank, simulated: █ states ▓ activations · free, of what the device allows{token_limit}"
    return Stack(Text(), *drawn, Text(legend, style="dim"))


def lines(by_bar: Mapping[MemoryBar, Ranks], width: int, canvas: Canvas) -> tuple[list[Text], int]:
    """Bars of this width with their text, and how many more there would be."""
    scale = max(max(bar.peak, bar.cap) for bar in by_bar) / width
    looks: dict[tuple[float, tuple[Cell, ...]], list[MemoryBar]] = {}
    for bar in by_bar:
        looks.setdefault((bar.cap, tuple(bar_cells(bar, scale, width))), []).append(bar)
    fullest = sorted(looks, key=lambda look: -max(map(used_share, looks[look])))[:SHOWN]
    in_order = [look for look in looks if look in fullest]
    names = rank_labels(
        [Ranks(sorted(rank for bar in looks[look] for rank in by_bar[bar])) for look in in_order], canvas
    )
    drawn = [
        cell_line(look[1], name).append(peak_text(looks[look], canvas))
        for look, name in zip(in_order, names, strict=True)
    ]
    return drawn, len(looks) - len(in_order)


def peak_text(alike: Sequence[MemoryBar], canvas: Canvas) -> str:
    """Peak and cap: `27.48-28.04 of 36.04 GiB`, or `20.5 MiB of 1.38 GiB`; on a narrow canvas the highest peak only."""
    least, most = min(bar.peak for bar in alike), max(bar.peak for bar in alike)
    if most < SMALL:
        return f" {most * 1024:.1f} MiB{'' if canvas.narrow else f' of {alike[0].cap:.2f} GiB'}"
    peak = f"{most:.2f}" if canvas.narrow or f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f}-{most:.2f}"
    return f" {peak} of {alike[0].cap:.2f}{'' if canvas.narrow else ' GiB'}"


def bars_by_ranks(plan: Plan, scores: Sequence[Score]) -> dict[MemoryBar, Ranks]:
    """Bars with the highest peak over all steps, and the ranks of each, ordered by their first rank."""
    holding, cluster = scores[0].plan_memory, plan.uses.cluster
    ranks_of: dict[MemoryBar, list[int]] = {}
    caps = {kind: allowed_bytes_on(plan, kind) / GIB for kind in plan.uses.devices}
    peaks = [max(by_step) / GIB for by_step in zip(*(score.memory.peaks for score in scores), strict=True)]
    for rank, peak in enumerate(peaks):
        bar = MemoryBar(
            round(holding.static_bytes(rank) / GIB, 4), round(peak, 4), round(caps[device_of_rank(cluster, rank)], 2)
        )
        ranks_of.setdefault(bar, []).append(rank)
    return {bar: Ranks(ranks) for bar, ranks in ranks_of.items()}


def used_share(bar: MemoryBar) -> float:
    """Peak as a share of what is allowed."""
    return bar.peak / bar.cap if bar.cap > 0 else float("inf")


def bar_cells(bar: MemoryBar, scale: float, width: int) -> list[Cell]:
    """Cells of a bar; what exceeds the cap is marked `!`."""
    colour = "red" if used_share(bar) > 1 else "yellow" if used_share(bar) > TIGHT else "green"
    states, peak, cap = (round(max(0.0, gib) / scale) for gib in bar)
    cells: list[Cell] = [("█" if at < states else "▓", colour) for at in range(min(peak, cap))]
    cells += [("!", "bold red")] * max(0, peak - cap)
    cells += [NOTHING] * max(0, cap - peak)
    return [*cells, *[(" ", "")] * (width - len(cells))]
