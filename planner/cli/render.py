"""The only module that prints: text through rich, or one JSON object."""

import io
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from planner.cli.canvas import Canvas
from planner.printable import UNSAFE, one_line, printable

SVG_CANVAS, PLAIN_CANVAS = Canvas(92), Canvas(92, plain=True)
BROKEN_PIPE = 141  # exit code: that of a program which SIGPIPE ended
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # would be fetched from the network


class PipeSafeConsole(Console):
    """A console of rich's that a reader may leave, and in which text of files commands nothing: all that is printed is
    rendered as strings or as Text.
    """

    def on_broken_pipe(self) -> NoReturn:
        exit_on_closed_pipe()

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(printable(text), **style)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and UNSAFE.search(renderable.plain):
            renderable = renderable.blank_copy(printable(renderable.plain))  # without the colours of its parts
        return super().render(renderable, options)


def exit_on_closed_pipe() -> NoReturn:
    """Exit silently when the reader of stdout has closed it, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards what is buffered
    sys.exit(BROKEN_PIPE)


def console(stderr: bool = False) -> Console:
    """What is printed is data: `[norm]`, what layers recompute, is no markup of rich's, and `:a:` no emoji."""
    return PipeSafeConsole(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)


def canvas() -> Canvas:
    """The canvas for this terminal, or for the pipe in its place."""
    out = console()
    return Canvas(out.width, plain=out.color_system is None)


def emit(as_json: bool, data: dict[str, Any], *pictures: RenderableType) -> None:
    """Print the pictures on stdout; or, for JSON, `data` on stdout and the pictures on stderr."""
    from planner.files import json_text

    out = console(stderr=as_json)
    for picture in pictures:
        whole = isinstance(picture, Text) and picture.no_wrap  # rich forgets it when it joins what is printed
        out.print(picture, crop=False, soft_wrap=whole)  # commands to copy are longer than a line, and stay in one
    if as_json:
        print_raw(json_text(data))


def svg(title: str, pictures: Iterable[RenderableType]) -> str:
    """The pictures as an SVG of a terminal, without external fonts."""
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    out = PipeSafeConsole(record=True, width=SVG_CANVAS.width, file=io.StringIO(), force_terminal=True, **plain)
    for picture in pictures:
        out.print(picture)
    return FONT.sub("", out.export_svg(title=title, unique_id="planner"))


def plain_text(pictures: Iterable[RenderableType]) -> str:
    """The pictures as text without colours."""
    written = io.StringIO()
    out = PipeSafeConsole(width=PLAIN_CANVAS.width, file=written, highlight=False, markup=False, emoji=False)
    for picture in pictures:
        out.print(picture)
    return printable(written.getvalue())


def note(*lines: str) -> None:
    """Print lines on stderr, beside what is printed on stdout."""
    sys.stderr.writelines(f"{one_line(line)}\n" for line in lines)


def print_raw(text: str) -> None:
    """Print text on stdout, without any layout."""
    try:
        sys.stdout.write(printable(text if text.endswith("\n") else text + "\n"))
        sys.stdout.flush()
    except BrokenPipeError:
        exit_on_closed_pipe()
