"""Colours of slices by group, in both viewers of Chrome traces.

chrome://tracing takes a colour name from `cname`. ui.perfetto.dev ignores it and derives the colour from the name of
the slice without its digits; so where names of groups differ in digits only, letters are appended: `… b`.
"""

import re
from collections.abc import Iterable

IGNORED_DIGITS = re.compile(r" ?\d+")  # removed by Perfetto from a slice's name before it chooses the colour
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CHROME_COLOURS = (  # colour names of chrome://tracing (catapult, tracing/base/color_scheme.html)
    "thread_state_running",
    "rail_response",
    "thread_state_iowait",
    "detailed_memory_dump",
    "rail_load",
    "rail_animation",
    "cq_build_passed",
    "rail_idle",
    "olive",
    "cq_build_failed",
    "generic_work",
    "yellow",
)


class GroupColours:
    """Assigns colours to groups in the order of their names, the same in all steps and on both sides."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.number = {group: number for number, group in enumerate(sorted({*groups}))}
        self.names_differ = len({IGNORED_DIGITS.sub("", group) for group in self.number}) == len(self.number)

    def slice_name(self, task: str, group: str) -> str:
        """Name of the slice of a task."""
        return task if self.names_differ else f"{task} {letters(self.number[group])}"

    def colour(self, group: str) -> str:
        return CHROME_COLOURS[self.number[group] % len(CHROME_COLOURS)]


def letters(number: int) -> str:
    """A number as letters, like the columns of a spreadsheet: 0 → a, 25 → z, 26 → aa."""
    spelled = ""
    while number >= 0:
        spelled = LETTERS[number % 26] + spelled
        number = number // 26 - 1
    return spelled
