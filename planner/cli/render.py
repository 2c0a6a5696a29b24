"""The only printer: text for people through rich, one JSON object for programs."""

import sys
from typing import Any

from rich.console import Console, RenderableType


def console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def width() -> int:
    """Columns to draw on."""
    return min(console().width, 120)


def emit(as_json: bool, data: dict[str, Any], *pictures: RenderableType) -> None:
    """`data` on stdout when JSON is asked for, the pictures then on stderr; else the pictures on stdout."""
    from planner.files import json_text

    out = console(stderr=as_json)
    for picture in pictures:
        out.print(picture)
    if as_json:
        raw(json_text(data))


def raw(text: str) -> None:
    """Text as it is, on stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()
