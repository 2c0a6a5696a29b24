"""Ranks that go from task to task without each other, drawn to scale: ranks from top to bottom, time to the right.

Passes differ in how dark they are, so that no colour is needed: forward, backward, or the two halves of a backward. The
number where one begins is its micro-batch. Ranks that look alike have one line.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.cli.canvas import NOTHING, Canvas, Cell, labels, line
from planner.plan.task import Phase
from planner.simulate import Event, Timeline
from planner.simulate.drawn import kinds_of
from planner.specs.base import Ranks
from planner.units import duration

PASSES: dict[Phase, tuple[str, str, str]] = {  # symbol, colour where there is one module, name
    "F": ("█", "blue", "forward"),
    "B": ("▓", "green", "backward"),
    "I": ("▒", "cyan", "input gradients"),
    "W": ("░", "yellow", "weight gradients"),
}
MODULES = ("blue", "yellow", "green", "magenta", "cyan", "red")
TALKING: Cell = ("~", "bright_black")
SHOWN = 16  # lines
CLEAR = 0.75  # share of a column from which on it shows nothing else


class Owner(NamedTuple):
    """What a cell shows."""

    phase: Phase
    module: str
    row: str


class Lane(NamedTuple):
    """Ranks that look alike."""

    ranks: Ranks
    owners: tuple[Owner | bool, ...]  # of each column; False: idle, True: communication alone


def lanes(shown: Timeline, canvas: Canvas) -> RenderableType:
    """The timeline, at most SHOWN lines of it."""
    found, kept, before = fitted(shown, canvas)
    passes = {owner for lane in found for owner in lane.owners if isinstance(owner, Owner)}
    style = Style(sorted({owner.module for owner in passes}), canvas.plain)
    drawn = [line(painted(lane.owners, style), name) for lane, name in zip(kept, before, strict=True)]
    if len(found) > SHOWN:
        drawn.insert(SHOWN // 2, Text(f"… {len(found) - SHOWN} more that look different", style="dim"))
    quiet = any(True in lane.owners for lane in found)
    return Stack(Text(), *drawn, legend({owner.phase for owner in passes}, style, quiet, shown.step_seconds))


def fitted(shown: Timeline, canvas: Canvas) -> tuple[list[Lane], list[Lane], list[str]]:
    """All lanes, those to draw and their labels: the more lanes differ, the shorter labels are, and the reverse."""
    for reserved in (6, 8, 10, 12, 16, 20):
        found = looking_alike(shown, max(10, canvas.width - reserved))
        kept = [*found[: SHOWN // 2], *found[-SHOWN // 2 :]] if len(found) > SHOWN else found
        before = labels([lane.ranks for lane in kept], canvas)
        if len(before[0]) <= reserved:
            break
    return found, kept, before


def looking_alike(shown: Timeline, columns: int) -> list[Lane]:
    """All ranks by what their lines show, the lowest first."""
    kinds: dict[int, list[int]] = {}
    for rank, kind in enumerate(kinds_of(shown)):
        kinds.setdefault(kind, []).append(rank)
    events: dict[int, list[Event]] = {kind: [] for kind in kinds}
    for event in shown.events:
        for rank in event.ranks:
            if rank in events:
                events[rank].append(event)
    looks: dict[tuple[Owner | bool, ...], list[int]] = {}
    for kind, ranks in kinds.items():
        looks.setdefault(owners(events[kind], shown.step_seconds, columns), []).extend(ranks)
    return sorted(Lane(Ranks(sorted(ranks)), look) for look, ranks in looks.items())


def owners(events: Sequence[Event], seconds: float, columns: int) -> tuple[Owner | bool, ...]:
    """What each column shows: what takes most of it, or where much happens within a column, each in its turn."""
    parts: list[dict[Owner | bool, float]] = [{} for _ in range(columns)]
    talking = [0.0] * columns
    scale = columns / seconds if seconds else 0.0
    for event in events:
        first, last = event.start * scale, event.end * scale
        owner = Owner(event.phase, event.module, event.id.rsplit("/", 2)[-2]) if event.phase in PASSES else None
        for column in range(int(first), min(columns, int(last) + 1)):
            part = min(last, column + 1) - max(first, column)
            if owner:
                parts[column][owner] = parts[column].get(owner, 0.0) + part
            elif event.stream != "compute":
                talking[column] += part
    turns = Turns()
    return tuple(turns.take(part, talk) for part, talk in zip(parts, talking, strict=True))


class Turns:
    """Columns in which several things happen show them in turn, so that each has as many as its share of the time."""

    def __init__(self) -> None:
        self.due: dict[object, float] = {}

    def take(self, parts: dict[Owner | bool, float], talk: float) -> Owner | bool:
        """`parts`: the share of each pass in the column; `talk`: of communication, hidden or not."""
        rest = max(0.0, 1.0 - sum(parts.values()))
        parts = {**parts, True: min(rest, talk), False: max(0.0, rest - talk)}
        most = max(parts, key=lambda owner: parts[owner])
        if parts[most] >= CLEAR:
            return most
        shares: dict[object, float] = {}
        for owner, part in parts.items():
            shares[kind(owner)] = shares.get(kind(owner), 0.0) + part
        for each, part in shares.items():
            self.due[each] = self.due.get(each, 0.0) + part
        taken = max((each for each, part in shares.items() if part > 0), key=lambda each: self.due[each])
        self.due[taken] -= 1.0
        return max((owner for owner in parts if kind(owner) == taken), key=lambda owner: parts[owner])


def kind(owner: Owner | bool) -> object:
    return owner[:2] if isinstance(owner, Owner) else owner


class Style(NamedTuple):
    """One module: colours tell passes; several: colours tell modules, and letters where there are no colours."""

    modules: list[str]
    plain: bool

    def look(self, owner: Owner) -> tuple[str, str]:
        symbol, colour, _ = PASSES[owner.phase]
        return symbol, colour if len(self.modules) == 1 else self.colour(owner.module)

    def colour(self, module: str) -> str:
        return MODULES[self.modules.index(module) % len(MODULES)]

    def letter(self, module: str) -> str:
        """Of its name, when no other module's begins with the same."""
        if len(self.modules) == 1 or not self.plain:
            return ""
        alone = len({name[0] for name in self.modules}) == len(self.modules)
        return module[0] if alone else "abcdefghijklmnopqrstuvwxyz"[self.modules.index(module) % 26]

    def number(self, owner: Owner) -> str:
        return self.letter(owner.module) + owner.row


def painted(owned: Sequence[Owner | bool], style: Style) -> list[Cell]:
    """Symbols and colours; a pass that is wide enough begins with its micro-batch."""
    cells: list[Cell] = []
    start = 0
    for column, owner in enumerate(owned):
        if not isinstance(owner, Owner):
            cells.append(TALKING if owner else NOTHING)
            continue
        start = column if column == 0 or owned[column - 1] != owner else start
        symbol, colour = style.look(owner)
        number, place = style.number(owner), column - start
        wide = owned[start : start + len(number) + 1].count(owner) == len(number) + 1
        cells.append((number[place], f"black on {colour}") if wide and place < len(number) else (symbol, colour))
    return cells


def legend(phases: set[Phase], style: Style, talking: bool, seconds: float) -> Text:
    said = Text()
    for module in style.modules if len(style.modules) > 1 else ():
        letter = style.letter(module)
        said.append(f"{letter} {module} " if letter else f"{module} ", style=style.colour(module))
    for phase, (symbol, colour, name) in PASSES.items():
        if phase in phases:
            said.append(symbol, style=colour if len(style.modules) == 1 else "").append(f" {name} ", style="dim")
    return said.append("~ communication " * talking + f"· idle, {duration(seconds)} across, simulated", style="dim")
