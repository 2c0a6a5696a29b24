"""The data of a page, read as its script reads them."""

import json
import re
from html.parser import HTMLParser
from itertools import accumulate
from typing import Any, NamedTuple

ISLAND = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
VOID = {"meta", "br", "link", "input"}


class Decoded(NamedTuple):
    """An event of one rank, in ticks."""

    id: str
    start: int
    end: int
    comm: int
    source: str
    spread: int
    tokens: int


def data_of(html: str) -> dict[str, Any]:
    (text,) = ISLAND.findall(html)
    return json.loads(text)


def ranks_of(data: dict[str, Any], step: int) -> list[list[Decoded]]:
    """Events of every rank, in the order of their starts."""
    found = []
    for first, count, row in data["steps"][step]["ranks"]:
        assert first == len(found)
        found += [events_of(data, row)] * count
    return found


def events_of(data: dict[str, Any], row: int) -> list[Decoded]:
    if row < 0:
        return []
    pattern, *groups = data["rows"][row]
    kinds, rows, slots, since = data["patterns"][pattern]
    found = []
    for kind, at, slot, start in zip(kinds, rows, slots, accumulate(since), strict=True):
        name, ticks, comm, source, spread, tokens = data["kinds"][kind]
        text = f"{data['names'][name][0]}/{'step' if at < 0 else at}/{data['groups'][groups[slot]]}"
        found.append(Decoded(text, start, start + ticks, comm, source, spread, tokens))
    return found


def curves_of(data: dict[str, Any], step: int) -> list[list[tuple[int, int]]]:
    """(ticks, KiB) of every rank."""
    found = []
    for _, count, curve in data["steps"][step]["memory"]:
        times, held = data["curves"][curve]
        found += [[*zip(accumulate(times), accumulate(held), strict=True)]] * count
    return found


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text within; raises AssertionError if tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & {*self.open}:
            self.text.append(data)

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]
