"""Builds HTML: everything that is not markup already is escaped, so that no name can become a tag."""

import json
import re
from collections.abc import Iterable
from typing import Any

from planner.printable import printable

UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
UNITS = re.compile(r"(?<=[0-9]) (?=(?:%|×|[mµn]?s|[KMG]i?B)(?![A-Za-z0-9]))|(?<=[≤±]) (?=[0-9])")
VOID = {"meta", "br", "link", "input", "rect", "path", "line"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Iterable["Content"] | None


def escaped(text: str) -> Markup:
    """Text as HTML, in which no sign reorders or hides others."""
    return Markup(printable(text).translate(ENTITIES))


def join(*content: Content) -> Markup:
    """Concatenate content: markup unchanged, text escaped."""
    parts: list[str] = []
    for piece in content:
        if isinstance(piece, Markup):
            parts.append(piece)
        elif isinstance(piece, str):
            parts.append(escaped(piece))
        elif piece is not None:
            parts.append(join(*piece))
    return Markup("".join(parts))


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """`tag("td", "3.1", class_="num")`; an attribute that is None or False is left out, `_` becomes `-`."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(f" {key}" if value is True else f' {key}="{escaped(number(value))}"')
    if name in VOID and not content:
        return Markup(
            f"<{name}{''.join(written)}>" if name in {"meta", "br", "link", "input"} else f"<{name}{''.join(written)}/>"
        )
    return Markup(f"<{name}{''.join(written)}>{join(*content)}</{name}>")


def number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def json_script(data: Any) -> Markup:
    """Data for the page's script as JSON in an element that no text can close."""
    text = json.dumps(with_printable_text(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign, code in UNSAFE.items():
        text = text.replace(sign, code)
    return Markup(f'<script type="application/json" id="data">{text}</script>')


def with_printable_text(data: Any) -> Any:
    """Data that the script writes into the page, with its text as `escaped` has it."""
    if isinstance(data, dict):
        return {with_printable_text(key): with_printable_text(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [with_printable_text(each) for each in data]
    return printable(data) if isinstance(data, str) else data


def table(columns: Iterable[str], rows: Iterable[Iterable[Content]], caption: str = "") -> Markup:
    """Columns that begin with `>` are numbers; the first column names its row."""
    heads = [*columns]
    kinds = ["num" if head.startswith(">") else None for head in heads]
    named = [(head.removeprefix(">"), kind) for head, kind in zip(heads, kinds, strict=True)]
    head = tag("tr", [tag("th", text, scope="col", class_=kind) if text else tag("td") for text, kind in named])
    body = [
        tag(
            "tr",
            [
                tag("th", cell, scope="row") if at == 0 else tag("td", cell, class_=kind)
                for at, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ],
        )
        for row in rows
    ]
    title = tag("caption", caption) if caption else None
    return scrolled(caption or "table", tag("table", title, tag("thead", head), tag("tbody", body)))


def drawing(label: str, size: tuple[float, float], *content: Content) -> Markup:
    """A picture of a width and a height in units of its own."""
    box = f"0 0 {size[0]:.0f} {size[1]:.0f}"
    return scrolled(label, tag("svg", *content, viewBox=box, role="img", aria_label=label))


def bar(title: str, place: tuple[float, float], size: tuple[float, float], fill: str) -> Markup:
    """A bar of a picture, wide enough to be seen; pointing at it shows its title."""
    (x, y), (width, height) = place, size
    shape = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{max(0.2, width):.2f}", "height": f"{height:.2f}"}
    return tag("rect", tag("title", title), **shape, fill=fill)


def lane_name(text: str, y: float) -> Markup:
    """What a lane of a picture is of, on its left."""
    return tag("text", text, x=0, y=f"{y:.1f}", font_size=9, fill="currentColor")


def scrolled(label: str, content: Markup) -> Markup:
    """Content that scrolls where it is wider than the page."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def details(summary: str, *content: Content, **attributes: str) -> Markup:
    """A section that is folded until opened."""
    return tag("details", tag("summary", summary), *content, **attributes)


def keep_units(text: str) -> str:
    """Keep a number and its unit on one line."""
    return UNITS.sub("\N{NO-BREAK SPACE}", text)


def section(key: str, title: str, *content: Content, lead: Content = None) -> Markup:
    """A landmark with its heading."""
    head = tag("h2", title, id=f"{key}-title")
    lead_text = tag("p", keep_units(lead) if isinstance(lead, str) else lead, class_="lead") if lead else None
    return tag("section", head, lead_text, *content, id=key, aria_labelledby=f"{key}-title")
