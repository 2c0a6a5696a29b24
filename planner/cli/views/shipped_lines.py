"""What is shipped, a line each: on a terminal cut at its width, whole in a pipe."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, OverflowMethod
from rich.text import Text

from planner.cli.render import console
from planner.workflows.shipped_lists import ShippedEntry


def answer(kind: str, entries: Sequence[ShippedEntry]) -> dict[str, Any]:
    listed = [{"name": entry.name, "what": entry.what, "source": entry.source, **entry.more} for entry in entries]
    return {kind: listed}


def lines(entries: Sequence[ShippedEntry]) -> Group:
    """Name, what it is, and source, in columns."""
    name_width, what_width = max(len(entry.name) for entry in entries), max(len(entry.what) for entry in entries)
    overflow: OverflowMethod = "ellipsis" if console().is_terminal else "ignore"
    return Group(
        *(
            Text.assemble(
                (f"{entry.name:<{name_width}}  ", "bold"),
                f"{entry.what:<{what_width}}  ",
                (entry.source, "dim"),
                no_wrap=True,
                overflow=overflow,
            )
            for entry in entries
        )
    )
