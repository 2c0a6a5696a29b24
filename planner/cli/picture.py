"""A plan drawn to scale in the terminal: ranks from left to right, time from top to bottom, one block per group.

A micro-batch is as tall as it lasts, and a group's block as tall as the group works; what stays dark is idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from planner.cli.canvas import Canvas
from planner.cli.tables import outcome_line, prediction_lines
from planner.plan.model import Assignment, Plan, assignments
from planner.simulate import Event, Timeline
from planner.specs.base import Ranks
from planner.units import duration
from planner.verify.score import Score

COLOURS = ("blue", "cyan", "green", "yellow", "magenta", "red", "bright_blue", "bright_green")
WIDEST = 72  # columns that few ranks are spread over
ROWS = 16  # lines that the longest step of a plan may take
STEPS_SHOWN = 3
RANKS_SHOWN = 16

Cell = tuple[str, str]  # symbol, style


def plan(shown: Plan, scores: Sequence[Score], canvas: Canvas) -> Iterator[RenderableType]:
    """Head, picture and outcome of a plan."""
    kinds = ", ".join(f"{kind.count} × {kind.kind}" for kind in shown.ranks)
    yield Text.assemble((shown.name, "bold"), f"  {shown.made.strategy} on {kinds}")
    yield outcome_line(shown.outcome)
    for number, score in enumerate(scores[:STEPS_SHOWN]):
        if len(scores) > 1:
            yield Text(f"\nstep {number}: {duration(score.value)}", style="bold")
        apart = shown.steps[number].sync == "step"  # ranks go from micro-batch to micro-batch without each other
        drawn = [timeline(score.timeline, canvas.width)] if apart else micro_batches(shown, number, score, canvas)
        yield from drawn
    if len(scores) > STEPS_SHOWN:
        yield Text(f"… and {len(scores) - STEPS_SHOWN} more steps", style="dim")
    yield from prediction_lines(shown)


# ------------------------------------------------------------------------------------- micro-batches of groups


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
    busy = score.timeline.group_seconds()
    rows = [[*assignments(shown, row)] for row in shown.steps[number].micro_batches]
    spans = [max((busy.get((at, a.group), 0.0) for a in row), default=0.0) for at, row in enumerate(rows)]
    for at, row in enumerate(rows):
        shares = [busy.get((at, a.group), 0.0) / (spans[at] or 1.0) for a in row]
        groups = [shown.groups[a.group].ranks for a in row]
        blocks = [
            block(ranks, share, n, shown.size, columns, canvas.plain)
            for n, (ranks, share) in enumerate(zip(groups, shares, strict=True))
        ]
        lines = max(1, round(ROWS * spans[at] / max(sum(spans), 1e-12)))
        yield Text(f"\nmicro-batch {at}  {duration(spans[at])}  {composition(shown, row)}", style="bold")
        yield Padding(band(blocks, columns, lines), (0, 2))


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
    tokens = sum(shown.uses.items[module][item] for module, item in items)
    return f"⟨{groups}⟩  {len(items)} sequences, {tokens:,} tokens"


def band(blocks: Sequence[Block], columns: int, lines: int) -> Text:
    """Ranks by time: a line of a block is filled while its group still works; the first line carries the labels."""
    picture = Text()
    for line in range(lines):
        cells: list[Cell] = [("·", "bright_black")] * columns
        for drawn in blocks:
            if line == 0 or drawn.share * lines > line + 0.5:
                cells[drawn.first : drawn.last] = [(drawn.fill, drawn.colour)] * (drawn.last - drawn.first)
            if line == 0:
                cells = labelled(cells, drawn)
        for symbol, colour in cells:
            picture.append(symbol, style=colour)
        picture.append("\n" if line < lines - 1 else "")
    return picture


def labelled(cells: list[Cell], drawn: Block) -> list[Cell]:
    """The group's degree, written into the middle of its block, when the block is wide enough."""
    width = drawn.last - drawn.first
    if width <= len(drawn.label):
        return cells
    start = drawn.first + (width - len(drawn.label)) // 2
    written = [(symbol, f"bold black on {drawn.colour}") for symbol in drawn.label]
    return [*cells[:start], *written, *cells[start + len(drawn.label) :]]


# ----------------------------------------------------------------------------------------- stages of a pipeline


def timeline(shown: Timeline, width: int) -> RenderableType:
    """Ranks from top to bottom, time from left to right: forward, backward, the rest idle; modules by colour."""
    columns = width - 10
    modules = sorted({event.module for event in shown.events if event.stream == "compute"})
    lines = []
    for rank in range(min(shown.ranks, RANKS_SHOWN)):
        line = Text(f"rank {rank:<4} ")
        for symbol, colour in rank_line(
            [e for e in shown.events if rank in e.ranks], shown.step_seconds, columns, modules
        ):
            line.append(symbol, style=colour)
        lines.append(line)
    legend = Text("          ")
    for module in modules:
        legend.append(f"{module} ", style=COLOURS[modules.index(module)])
    return Stack(
        Text(), *lines, legend.append(f"█ forward ▓ backward · idle, {duration(shown.step_seconds)} across", "dim")
    )


def rank_line(events: Sequence[Event], seconds: float, columns: int, modules: list[str]) -> list[Cell]:
    cells = [("·", "bright_black")] * columns
    for event in events:
        if event.phase in ("F", "B") and event.seconds > 0:
            first = int(event.start / seconds * columns)
            last = max(first + 1, round(event.end / seconds * columns))
            symbol = "█" if event.phase == "F" else "▓"
            for column in range(first, min(last, columns)):
                cells[column] = (symbol, COLOURS[modules.index(event.module)])
    return cells
