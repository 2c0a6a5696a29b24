"""Micro-batches that all ranks share, drawn to scale: ranks from left to right, time from top to bottom.

A micro-batch is as tall as it lasts, and a group's block as tall as the group works; what stays dark is idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from planner.cli.canvas import COLOURS, NOTHING, Canvas, Cell, line
from planner.plan.model import Assignment, Plan, assignments
from planner.plan.words import items_text
from planner.specs.base import Ranks
from planner.units import duration
from planner.verify.score import Score

WIDEST = 72  # columns that few ranks are spread over
ROWS = 16  # lines that the longest step of a plan may take
CROWD: Cell = ("▒", "bright_blue")  # groups of which several share a column


@dataclass(frozen=True, slots=True)
class Block:
    """One group in one micro-batch: its columns, and how long it works, as a share of the micro-batch."""

    first: int
    last: int  # one past
    share: float
    label: str
    colour: str
    fill: str


def micro_batches(shown: Plan, number: int, score: Score, canvas: Canvas) -> Iterator[RenderableType]:
    """Each micro-batch as a band of ranks by time."""
    columns = min(canvas.width - 4, shown.size * max(1, WIDEST // shown.size))
    least = 1 if columns >= shown.size else 2 * shown.size / columns  # ranks of a group that has a block of its own
    busy = score.timeline.group_seconds()
    rows = [[*assignments(shown, row)] for row in shown.steps[number].micro_batches]
    spans = [max((busy.get((at, a.group), 0.0) for a in row), default=0.0) for at, row in enumerate(rows)]
    for at, row in enumerate(rows):
        shares = [busy.get((at, a.group), 0.0) / (spans[at] or 1.0) for a in row]
        placed = [*zip((shown.groups[a.group].ranks for a in row), shares, strict=True)]
        wide = [pair for pair in placed if len(pair[0]) >= least]
        narrow = [pair for pair in placed if len(pair[0]) < least]
        blocks = [
            block(ranks, share, number, shown.size, columns, canvas.plain) for number, (ranks, share) in enumerate(wide)
        ]
        lines = max(1, round(ROWS * spans[at] / max(sum(spans), 1e-12)))
        yield Text(f"\nmicro-batch {at}  {duration(spans[at])}  {composition(shown, row)}", style="bold")
        yield Padding(band(blocks, crowded(narrow, shown.size, columns), lines), (0, 2))
        if narrow:
            yield Text(f"  {CROWD[0]} several groups in a column: as tall as they work on average", style="dim")


def block(ranks: Ranks, share: float, number: int, size: int, columns: int, plain: bool) -> Block:
    first = ranks[0] * columns // size
    last = max((ranks[-1] + 1) * columns // size, first + 1)
    fill = "█▓"[number % 2] if plain else "█"
    return Block(first, last, share, str(len(ranks)), COLOURS[number % len(COLOURS)], fill)


def composition(shown: Plan, placed: Sequence[Assignment]) -> str:
    """`⟨32, 16×2⟩  117 sequences, 412,330 tokens`."""
    degrees: dict[int, int] = {}
    for a in placed:
        degree = len(shown.groups[a.group].ranks)
        degrees[degree] = degrees.get(degree, 0) + 1
    groups = ", ".join(f"{d}×{count}" if count > 1 else str(d) for d, count in sorted(degrees.items(), reverse=True))
    items = [(a.module, item) for a in placed for item in a.items]
    return f"⟨{groups}⟩  {items_text(shown, items, 'sequence' if len(shown.layouts) == 1 else 'item')}"


def band(blocks: Sequence[Block], below: Sequence[float], lines: int) -> RenderableType:
    """Ranks by time: a line of a block is filled while its group still works; the first line carries the labels.

    `below`: of each column, the share of the time that groups work which are too narrow for blocks of their own.
    """
    picture = []
    for number in range(lines):
        cells: list[Cell] = [CROWD if share * lines > number + 0.5 else NOTHING for share in below]
        for drawn in blocks:
            if number == 0 or drawn.share * lines > number + 0.5:
                cells[drawn.first : drawn.last] = [(drawn.fill, drawn.colour)] * (drawn.last - drawn.first)
            if number == 0:
                cells = labelled(cells, drawn)
        picture.append(line(cells))
    return Stack(*picture)


def labelled(cells: list[Cell], drawn: Block) -> list[Cell]:
    """The group's degree, written into the middle of its block, when the block is wide enough."""
    width = drawn.last - drawn.first
    if width <= len(drawn.label):
        return cells
    start = drawn.first + (width - len(drawn.label)) // 2
    written = [(symbol, f"bold black on {drawn.colour}") for symbol in drawn.label]
    return [*cells[:start], *written, *cells[start + len(drawn.label) :]]


def crowded(placed: Sequence[tuple[Ranks, float]], size: int, columns: int) -> list[float]:
    """Where groups share columns: how long the ranks of each column work on average; 0 where there are none."""
    busy, ranks_of = [0.0] * columns, [0] * columns
    for ranks, share in placed:
        for rank in ranks:
            busy[rank * columns // size] += share
            ranks_of[rank * columns // size] += 1
    return [share / max(1, count) for share, count in zip(busy, ranks_of, strict=True)]
