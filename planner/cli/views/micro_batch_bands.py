"""Draws micro-batches to scale: ranks from left to right, time from top to bottom.

The height of a micro-batch is its duration, that of a group's block the time that the group works; the rest is idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from planner.cli.canvas import COLOURS, NOTHING, Canvas, Cell, cell_line
from planner.plan.descriptions import items_text
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.scoring import Score
from planner.specs.base import Ranks
from planner.units import duration

WIDEST = 72  # columns at most, where ranks are fewer than columns
LINES = 16  # of the picture of a whole step
SHARED_COLUMN: Cell = ("▒", "bright_blue")  # columns that several groups share


@dataclass(frozen=True, slots=True)
class GroupBand:
    """One group in one micro-batch: its columns, and the share of the micro-batch during which it works."""

    first: int
    last: int  # one past
    share: float
    label: str
    colour: str
    fill: str


def micro_batch_bands(plan: Plan, number: int, score: Score, canvas: Canvas) -> Iterator[RenderableType]:
    """Draw each micro-batch of a step as a band of ranks by time."""
    columns = min(canvas.width - 4, plan.size * max(1, WIDEST // plan.size))
    least_ranks = 1 if columns >= plan.size else 2 * plan.size / columns  # ranks of a group that get a block of its own
    working = score.timeline.group_seconds()
    micro_batches_placed = [[*assignments(plan, members)] for members in plan.steps[number].micro_batches]
    durations = [
        max((working.get((at, a.group), 0.0) for a in members), default=0.0)
        for at, members in enumerate(micro_batches_placed)
    ]
    for at, members in enumerate(micro_batches_placed):
        shares = [working.get((at, a.group), 0.0) / (durations[at] or 1.0) for a in members]
        placed = [*zip((plan.groups[a.group].ranks for a in members), shares, strict=True)]
        wide = [pair for pair in placed if len(pair[0]) >= least_ranks]
        narrow = [pair for pair in placed if len(pair[0]) < least_ranks]
        blocks = [
            block(ranks, share, number, plan.size, columns, canvas.plain) for number, (ranks, share) in enumerate(wide)
        ]
        lines = max(1, round(LINES * durations[at] / max(sum(durations), 1e-12)))
        yield Text(f"\nmicro-batch {at}  {duration(durations[at])}  {composition(plan, members)}", style="bold")
        yield Padding(band(blocks, crowded_shares(narrow, plan.size, columns), lines), (0, 2))
        if narrow:
            yield Text(
                f"  {SHARED_COLUMN[0]} several groups share a column: its height is their mean working time",
                style="dim",
            )


def block(ranks: Ranks, share: float, number: int, size: int, columns: int, plain: bool) -> GroupBand:
    first = ranks[0] * columns // size
    last = max((ranks[-1] + 1) * columns // size, first + 1)
    fill = "█▓"[number % 2] if plain else "█"
    return GroupBand(first, last, share, str(len(ranks)), COLOURS[number % len(COLOURS)], fill)


def composition(plan: Plan, placed: Sequence[Assignment]) -> str:
    """Degrees, items and tokens of a micro-batch: `⟨32, 16×2⟩  117 sequences, 412,330 tokens`."""
    degrees: dict[int, int] = {}
    for a in placed:
        degree = len(plan.groups[a.group].ranks)
        degrees[degree] = degrees.get(degree, 0) + 1
    groups = ", ".join(f"{d}×{count}" if count > 1 else str(d) for d, count in sorted(degrees.items(), reverse=True))
    items = [(a.module, item) for a in placed for item in a.items]
    return f"⟨{groups}⟩  {items_text(plan, items, 'sequence' if len(plan.layouts) == 1 else 'item')}"


def band(blocks: Sequence[GroupBand], below: Sequence[float], lines: int) -> RenderableType:
    """Draw ranks by time: a line of a block is filled while its group works; the first line carries the labels.

    `below`: for each column, the share of the time during which groups work that are too narrow for their own blocks.
    """
    picture = []
    for number in range(lines):
        cells: list[Cell] = [SHARED_COLUMN if share * lines > number + 0.5 else NOTHING for share in below]
        for drawn in blocks:
            if number == 0 or drawn.share * lines > number + 0.5:
                cells[drawn.first : drawn.last] = [(drawn.fill, drawn.colour)] * (drawn.last - drawn.first)
            if number == 0:
                cells = labelled(cells, drawn)
        picture.append(cell_line(cells))
    return Stack(*picture)


def labelled(cells: list[Cell], drawn: GroupBand) -> list[Cell]:
    """Write the group's degree into the middle of its block, if the block is wide enough."""
    width = drawn.last - drawn.first
    if width <= len(drawn.label):
        return cells
    start = drawn.first + (width - len(drawn.label)) // 2
    written = [(symbol, f"bold black on {drawn.colour}") for symbol in drawn.label]
    return [*cells[:start], *written, *cells[start + len(drawn.label) :]]


def crowded_shares(placed: Sequence[tuple[Ranks, float]], size: int, columns: int) -> list[float]:
    """Mean share of the time during which the ranks of each column work, for columns that groups share; else 0."""
    busy, ranks_of = [0.0] * columns, [0] * columns
    for ranks, share in placed:
        for rank in ranks:
            busy[rank * columns // size] += share
            ranks_of[rank * columns // size] += 1
    return [share / max(1, count) for share, count in zip(busy, ranks_of, strict=True)]
