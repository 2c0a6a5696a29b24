"""Groups told apart by colour, in both programs that draw Chrome traces.

chrome://tracing takes the name of a colour from `cname`. ui.perfetto.dev ignores that and colours a slice by its own
name without the digits, so a slice's name carries letters for its group where groups differ in digits only: `… b`.
"""

import re
from collections.abc import Iterable

DIGITS = re.compile(r" ?\d+")  # what Perfetto takes out of a slice's name before it chooses the colour
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = (  # of colours in chrome://tracing (catapult, tracing/base/color_scheme.html)
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


class Colours:
    """Of groups, in the order of their names: the same group has the same colour in every step and on every side."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.number = {group: number for number, group in enumerate(sorted({*groups}))}
        self.clear = len({DIGITS.sub("", group) for group in self.number}) == len(self.number)

    def name(self, task: str, group: str) -> str:
        """What a slice is called."""
        return task if self.clear else f"{task} {letters(self.number[group])}"

    def colour(self, group: str) -> str:
        return NAMES[self.number[group] % len(NAMES)]


def letters(number: int) -> str:
    """0 → a, 25 → z, 26 → aa."""
    spelled = ""
    while number >= 0:
        spelled = LETTERS[number % 26] + spelled
        number = number // 26 - 1
    return spelled
