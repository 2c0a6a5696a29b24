"""Draws micro-batches to scale: ranks from left to right, time from top to bottom.

The height of a micro-batch is its duration, that of a group's block the time that the group works; the rest is idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from planner.cli.canvas import COLOURS, NOTHING, Canvas, Cell, cell_line
from planner.plan.descriptions import items_text
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.scoring import Score
from planner.specs.base import Ranks
from planner.units import duration, multiset_text

MOST = 12  # bands of a step
LINES = 16  # of the picture of a whole step, and 4 for each band where there are few
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


@dataclass(frozen=True, slots=True)
class DrawnMicroBatch:
    """What a micro-batch looks like; those that follow each other and look alike are drawn once."""

    seconds: float
    composition: str
    groups: tuple[tuple[Ranks, float], ...]  # ranks, and the share of the seconds during which they work


def micro_batch_bands(plan: Plan, number: int, score: Score, canvas: Canvas) -> Iterator[RenderableType]:
    """Draw the micro-batches of a step as bands of ranks by time, to scale, alike ones once."""
    runs = [(look, len([*run])) for look, run in groupby(drawn_micro_batches(plan, number, score))]
    lines = min(LINES, 4 * len(runs)) / max(sum(look.seconds for look, _ in runs), 1e-12)  # a second
    first = 0
    for look, alike in runs[:MOST]:
        numbers = f"micro-batches {first} to {first + alike - 1}, alike" if alike > 1 else f"micro-batch {first}"
        each = " each" if alike > 1 else ""
        yield Text(f"\n{numbers}  {duration(look.seconds)}{each}  {look.composition}", style="bold")
        yield from drawn_groups(look, max(1, round(lines * look.seconds)), plan.size, canvas)
        first += alike
    rest = [look.seconds for look, _ in runs[MOST:]]
    if rest:
        left = len(plan.steps[number].micro_batches) - first
        span = f"{duration(min(rest))} to {duration(max(rest))} each"
        yield Text(f"\n… and {left} more micro-batches, {span} (planner report draws all)", style="dim")


def drawn_micro_batches(plan: Plan, number: int, score: Score) -> Iterator[DrawnMicroBatch]:
    """The micro-batches of a step, in their order; times to the digits of a plan file, so that alike ones are equal."""
    working = {key: round_digits(seconds) for key, seconds in score.timeline.group_seconds().items()}
    for at, members in enumerate(plan.steps[number].micro_batches):
        placed = [*assignments(plan, members)]
        seconds = max((working.get((at, a.group), 0.0) for a in placed), default=0.0)
        groups = [(plan.groups[a.group].ranks, working.get((at, a.group), 0.0) / (seconds or 1.0)) for a in placed]
        yield DrawnMicroBatch(seconds, composition(plan, placed), tuple(groups))


def drawn_groups(look: DrawnMicroBatch, lines: int, size: int, canvas: Canvas) -> Iterator[RenderableType]:
    """Draw the groups of one micro-batch over the width that there is."""
    width = canvas.width - 4
    columns = width // size * size if width >= size else width
    least_ranks = 1 if columns >= size else 2 * size / columns  # ranks of a group that get a block of its own
    wide = [pair for pair in look.groups if len(pair[0]) >= least_ranks]
    narrow = [pair for pair in look.groups if len(pair[0]) < least_ranks]
    blocks = [block(ranks, share, number, size, columns, canvas.plain) for number, (ranks, share) in enumerate(wide)]
    yield Padding(band(blocks, crowded_shares(narrow, size, columns), lines), (0, 2))
    if narrow:
        yield Text(
            f"  {SHARED_COLUMN[0]} several groups share a column: its height is their mean working time", style="dim"
        )


def block(ranks: Ranks, share: float, number: int, size: int, columns: int, plain: bool) -> GroupBand:
    first = ranks[0] * columns // size
    last = max((ranks[-1] + 1) * columns // size, first + 1)
    fill = "█▓"[number % 2] if plain else "█"
    return GroupBand(first, last, share, str(len(ranks)), COLOURS[number % len(COLOURS)], fill)


def composition(plan: Plan, placed: Sequence[Assignment]) -> str:
    """Degrees, items and tokens of a micro-batch: `⟨32, 16×2⟩  117 sequences, 412,330 tokens`."""
    groups = multiset_text(len(plan.groups[a.group].ranks) for a in placed)
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
