"""Draws a timeline with a line for each rank, time to the right: pipelines, and ranks that synchronise once a step.

Passes differ in shade, so that no colour is needed: forward, backward, or the input and weight gradients of a backward.
The number at the start of a pass is its micro-batch. Idle time in which a rank waits for another module has that
module's colour. Ranks that look the same share a line.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.canvas import NOTHING, Canvas, Cell, cell_line, rank_labels
from planner.plan.task import Phase
from planner.simulate import ModuleWait, Timeline, representatives_of_ranks, waits_for_modules
from planner.specs.base import Ranks
from planner.units import duration

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
PASSES: dict[Phase, tuple[str, str, str]] = {  # symbol, colour where there is one module, name
    "F": ("█", "blue", "forward"),
    "B": ("▓", "green", "backward"),
    "I": ("▒", "cyan", "input gradients"),
    "W": ("░", "yellow", "weight gradients"),
}
MODULES = ("blue", "yellow", "green", "magenta", "cyan", "red")
WAITING = ":"
LanePhase = Phase | Literal["wait"]
COMMUNICATING: Cell = ("~", "bright_black")
SHOWN = 16  # lines
CLEAR = 0.75  # share of a column above which it shows only that


class PassCell(NamedTuple):
    """The pass that a cell shows, or the module that it waits for."""

    phase: LanePhase
    module: str
    micro_batch: str


class Lane(NamedTuple):
    """Ranks that look the same, and what their line shows."""

    ranks: Ranks
    owners: tuple[PassCell | bool, ...]  # by column; False: idle, True: communication only


def rank_lanes(timeline: Timeline, canvas: Canvas) -> RenderableType:
    """Draw the timeline in at most SHOWN lines."""
    all_lanes, drawn_lanes, names = fitted(timeline, canvas)
    passes = {owner for lane in all_lanes for owner in lane.owners if isinstance(owner, PassCell)}
    style = LaneStyle(sorted({owner.module for owner in passes}), canvas.plain)
    drawn = [cell_line(painted(lane.owners, style), name) for lane, name in zip(drawn_lanes, names, strict=True)]
    if len(all_lanes) > SHOWN:
        drawn.insert(SHOWN // 2, Text(f"… {len(all_lanes) - SHOWN} more that look different", style="dim"))
    communicates = any(True in lane.owners for lane in all_lanes)
    return Stack(Text(), *drawn, legend({owner.phase for owner in passes}, style, communicates, timeline.step_seconds))


def fitted(timeline: Timeline, canvas: Canvas) -> tuple[list[Lane], list[Lane], list[str]]:
    """All lanes, those to draw and their labels; wider labels leave fewer columns, so more lanes look the same."""
    kinds = spans_by_kind(timeline)
    for reserved in (6, 8, 10, 12, 16, 20):
        all_lanes = group_lanes(kinds, timeline.step_seconds, max(10, canvas.width - reserved))
        drawn_lanes = [*all_lanes[: SHOWN // 2], *all_lanes[-SHOWN // 2 :]] if len(all_lanes) > SHOWN else all_lanes
        names = rank_labels([lane.ranks for lane in drawn_lanes], canvas)
        if len(names[0]) <= reserved:
            break
    return all_lanes, drawn_lanes, names


def group_lanes(kinds: Sequence[tuple[list[int], "LaneSpans"]], seconds: float, columns: int) -> list[Lane]:
    """Group all ranks by what their lines show, lowest rank first."""
    looks: dict[tuple[PassCell | bool, ...], list[int]] = {}
    for ranks, spans in kinds:
        looks.setdefault(column_owners(spans, seconds, columns), []).extend(ranks)
    return sorted(Lane(Ranks(sorted(ranks)), look) for look, ranks in looks.items())


def spans_by_kind(timeline: Timeline) -> list[tuple[list[int], "LaneSpans"]]:
    """Ranks that do the same, and what one of them does."""
    kinds: dict[int, list[int]] = {}
    for rank, kind in enumerate(representatives_of_ranks(timeline)):
        kinds.setdefault(kind, []).append(rank)
    events: dict[int, list[int]] = {kind: [] for kind in kinds}  # places of a kind's events
    for place, event in enumerate(timeline.events):
        for rank in event.ranks:
            if rank in events:
                events[rank].append(place)
    waits = waits_for_modules(timeline, [*kinds])
    return [(ranks, with_waits(lane_spans(timeline, events[kind]), waits[kind])) for kind, ranks in kinds.items()]


class LaneSpans(NamedTuple):
    """What a rank does in the whole step, (spans,) each."""

    start: FloatArray  # seconds
    end: FloatArray
    owner: IntArray  # number in `owners`, or COMMUNICATION, or NO_OWNER
    micro_batch: IntArray
    owners: list[tuple[LanePhase, str]]  # phase and module


COMMUNICATION, NO_OWNER = -1, -2


def lane_spans(timeline: Timeline, places: Sequence[int]) -> LaneSpans:
    """The spans of these events."""
    events = [timeline.events[place] for place in places]
    owners: list[tuple[LanePhase, str]] = [
        *dict.fromkeys((event.phase, event.module) for event in events if event.phase in PASSES)
    ]
    number = {owner: at for at, owner in enumerate(owners)}
    other = {True: NO_OWNER, False: COMMUNICATION}
    spans = np.array(
        [
            (
                event.start,
                event.end,
                number.get((event.phase, event.module), other[event.stream == "compute"]),
                int(event.id.rsplit("/", 2)[-2]) if event.phase in PASSES else 0,
            )
            for event in events
        ],
        dtype=np.float64,
    ).reshape(-1, 4)
    whole = spans[:, 2:].astype(np.int64)
    return LaneSpans(spans[:, 0], spans[:, 1], whole[:, 0], whole[:, 1], owners)


def with_waits(spans: LaneSpans, waits: Sequence[ModuleWait]) -> LaneSpans:
    """The spans of a rank, with those in which it waits for other modules."""
    if not waits:
        return spans
    owners = [*spans.owners, *dict.fromkeys(("wait", wait.module) for wait in waits)]
    number = {owner: at for at, owner in enumerate(owners)}
    return LaneSpans(
        start=np.concatenate([spans.start, [wait.start for wait in waits]]),
        end=np.concatenate([spans.end, [wait.end for wait in waits]]),
        owner=np.concatenate([spans.owner, [number["wait", wait.module] for wait in waits]]),
        micro_batch=np.concatenate([spans.micro_batch, [0 for _ in waits]]),
        owners=owners,
    )


def column_owners(spans: LaneSpans, seconds: float, columns: int) -> tuple[PassCell | bool, ...]:
    """What each column shows: what takes most of it, or several things in turn where they share it."""
    scale = columns / seconds if seconds else 0.0
    first, last = spans.start * scale, spans.end * scale
    low, high = first.astype(np.int64), np.minimum(columns, last.astype(np.int64) + 1)
    width = np.maximum(0, high - low)
    which = np.repeat(np.arange(len(first)), width)
    column = np.arange(len(which)) - np.repeat(np.cumsum(width) - width, width) + low[which]
    share = np.minimum(last[which], column + 1) - np.maximum(first[which], column)
    talk = np.bincount(column, np.where(spans.owner[which] == COMMUNICATION, share, 0.0), columns)
    passes = spans.owner[which] >= 0
    sizes = columns, len(spans.owners) or 1, int(spans.micro_batch.max(initial=0)) + 1
    keys = np.ravel_multi_index((column[passes], spans.owner[which][passes], spans.micro_batch[which][passes]), sizes)
    kinds, place, of = np.unique(keys, return_index=True, return_inverse=True)
    sums = np.bincount(of, share[passes], len(place)).tolist()
    parts: list[dict[PassCell | bool, float]] = [{} for _ in range(columns)]
    at_column, owner, micro_batch = (each.tolist() for each in np.unravel_index(kinds, sizes))
    for at in np.argsort(place).tolist():
        phase, module = spans.owners[owner[at]]
        parts[at_column[at]][PassCell(phase, module, str(micro_batch[at]))] = sums[at]
    turns = ColumnTurns()
    return tuple(turns.take(*each) for each in zip(parts, talk.tolist(), strict=True))


class ColumnTurns:
    """Columns in which several things happen show them in turn, in proportion to their shares of the time."""

    def __init__(self) -> None:
        self.due: dict[object, float] = {}

    def take(self, parts: dict[PassCell | bool, float], talk: float) -> PassCell | bool:
        """Choose what a column shows. `parts`: share of each pass; `talk`: of communication, exposed or hidden."""
        rest = max(0.0, 1.0 - sum(parts.values()))
        parts = {**parts, True: min(rest, talk), False: max(0.0, rest - talk)}
        most = max(parts, key=lambda owner: parts[owner])
        if parts[most] >= CLEAR:
            return most
        shares: dict[object, float] = {}
        for owner, part in parts.items():
            shares[owner_kind(owner)] = shares.get(owner_kind(owner), 0.0) + part
        for kind, part in shares.items():
            self.due[kind] = self.due.get(kind, 0.0) + part
        taken = max((kind for kind, part in shares.items() if part > 0), key=lambda kind: self.due[kind])
        self.due[taken] -= 1.0
        return max((owner for owner in parts if owner_kind(owner) == taken), key=lambda owner: parts[owner])


def owner_kind(owner: PassCell | bool) -> object:
    return owner[:2] if isinstance(owner, PassCell) else owner


class LaneStyle(NamedTuple):
    """Colours mean passes where there is one module, else modules; without colours, letters mean modules."""

    modules: list[str]
    plain: bool

    def look(self, owner: PassCell) -> tuple[str, str]:
        if owner.phase == "wait":
            return WAITING, self.colour(owner.module)
        symbol, colour, _ = PASSES[owner.phase]
        return symbol, colour if len(self.modules) == 1 else self.colour(owner.module)

    def colour(self, module: str) -> str:
        return MODULES[self.modules.index(module) % len(MODULES)]

    def letter(self, module: str) -> str:
        """First letter of the module's name if that is unique, else a letter of the alphabet."""
        if len(self.modules) == 1 or not self.plain:
            return ""
        alone = len({name[0] for name in self.modules}) == len(self.modules)
        return module[0] if alone else "abcdefghijklmnopqrstuvwxyz"[self.modules.index(module) % 26]

    def number(self, owner: PassCell) -> str:
        return self.letter(owner.module) + owner.micro_batch


def painted(owned: Sequence[PassCell | bool], style: LaneStyle) -> list[Cell]:
    """Cells of a lane; a pass that is wide enough begins with its micro-batch."""
    cells: list[Cell] = []
    start = 0
    for column, owner in enumerate(owned):
        if not isinstance(owner, PassCell):
            cells.append(COMMUNICATING if owner else NOTHING)
            continue
        start = column if column == 0 or owned[column - 1] != owner else start
        symbol, colour = style.look(owner)
        number, place = "" if owner.phase == "wait" else style.number(owner), column - start
        wide = owned[start : start + len(number) + 1].count(owner) == len(number) + 1
        cells.append((number[place], f"black on {colour}") if wide and place < len(number) else (symbol, colour))
    return cells


def legend(phases: set[LanePhase], style: LaneStyle, communicates: bool, seconds: float) -> Text:
    text = Text()
    for module in style.modules if len(style.modules) > 1 else ():
        letter = style.letter(module)
        text.append(f"{letter} {module} " if letter else f"{module} ", style=style.colour(module))
    for phase, (symbol, colour, name) in PASSES.items():
        if phase in phases:
            text.append(symbol, style=colour if len(style.modules) == 1 else "").append(f" {name} ", style="dim")
    if "wait" in phases:
        text.append(WAITING).append(" waits for another module ", style="dim")
    return text.append(
        "~ communication " * communicates + f"· idle, {duration(seconds)} across, simulated", style="dim"
    )
