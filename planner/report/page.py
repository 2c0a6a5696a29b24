"""A page as one self-contained HTML file: style, script and data inline, and a policy that forbids loading anything."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import planner
from planner.report.tags import Content, Markup, join, json_script, keep_units, tag

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = (
    "base.js",
    "decode.js",
    "steps.js",
    "window.js",
    "columns.js",
    "colours.js",
    "timeline.js",
    "runs.js",
    "minimap.js",
    "gestures.js",
    "readout.js",
    "ranks.js",
    "scatter.js",
    "main.js",
)


class Figure(NamedTuple):
    """A number at the head of a page, with its name and a note."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page, from top to bottom."""

    kind: str  # plan, timeline, ledger
    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    sections: tuple[Markup, ...]
    data: dict[str, Any]  # for the script
    summary: dict[str, Any]  # the JSON answer: what the page shows

    def html(self) -> str:
        """The HTML file; the same page gives the same bytes."""
        style, script = asset("style.css"), "\n".join(map(asset, SCRIPTS))
        policy = (
            f"default-src 'none'; style-src {csp_hash(style)}; script-src {csp_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        )
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content=f"planner {planner.__version__}"),
            tag("title", f"{self.title}: {self.kind}"),
            tag("style", Markup(style)),
        )
        body = tag("body", self.top(), self.main(), self.end(), json_script(self.data), tag("script", Markup(script)))
        return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"

    def top(self) -> Markup:
        theme = tag("button", "Theme: system", id="theme", type="button", hidden=True)
        return tag(
            "header",
            tag("a", "Skip to the content", href="#main", class_="skip"),
            tag("div", tag("p", f"planner · {self.kind}", class_="eyebrow"), theme, class_="bar"),
            tag("h1", self.title),
            tag("p", self.subtitle, class_="subtitle"),
        )

    def main(self) -> Markup:
        figures = [
            tag("div", tag("dt", name), tag("dd", tag("b", keep_units(value)), tag("span", keep_units(note))))
            for name, value, note in self.figures
        ]
        script = tag("noscript", tag("p", "Without scripts this page shows its tables only.", class_="note"))
        return tag("main", tag("dl", figures, class_="figures") if figures else None, script, *self.sections, id="main")

    def end(self) -> Markup:
        notice = f"Written by planner {planner.__version__}. This page loads nothing and sends nothing."
        return tag("footer", tag("p", notice))


@cache
def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """A Content-Security-Policy source expression that allows only this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def per_step(steps: Sequence[Content]) -> Markup:
    """One piece of content per step; the script shows the chosen one, without a script all are shown."""
    pieces = enumerate(steps)
    return join(tag("div", piece, class_="of-step" if at else "of-step on", data_step=str(at)) for at, piece in pieces)
