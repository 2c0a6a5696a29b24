"""What is shipped, a line each: on a terminal cut at its width, whole in a pipe."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, OverflowMethod
from rich.text import Text

from planner.cli.render import console
from planner.workflows.shipped_lists import ShippedEntry


def answer(kind: str, entries: Sequence[ShippedEntry]) -> dict[str, Any]:
    listed = []
    for entry in entries:
        origin = {"origin": entry.origin} if entry.origin else {}
        listed.append({"name": entry.name, **origin, "what": entry.what, "source": entry.source, **entry.more})
    return {kind: listed}


def lines(entries: Sequence[ShippedEntry]) -> Group:
    """Name, of a model where it is from, what it is, and source, in columns."""
    name_width, what_width = max(len(entry.name) for entry in entries), max(len(entry.what) for entry in entries)
    origin_width = max(len(entry.origin) + 2 * bool(entry.origin) for entry in entries)
    overflow: OverflowMethod = "ellipsis" if console().is_terminal else "ignore"
    return Group(
        *(
            Text.assemble(
                (f"{entry.name:<{name_width}}  ", "bold"),
                f"{entry.origin:<{origin_width}}",
                f"{entry.what:<{what_width}}  ",
                (entry.source, "dim"),
                no_wrap=True,
                overflow=overflow,
            )
            for entry in entries
        )
    )
