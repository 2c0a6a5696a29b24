"""Parses YAML text to plain data, with the line and column of every value.

Only YAML 1.2's scalars are recognised (`1e9` is a number, `on` is a word), duplicate keys and aliases are refused, and
nothing is ever executed. The parser's events are assembled here, on a stack of our own: no depth of nesting exhausts
the interpreter's, and parsing ends at the first event that is refused.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml
from yaml.reader import Reader

from planner.errors import InputError
from planner.printable import one_line
from planner.units import PERCENTAGE

try:  # libyaml when present: about ten times faster
    from yaml import CSafeLoader as Loader
except ImportError:  # pragma: no cover - depends on how PyYAML was built
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

KeyStep = str | int  # a key or an index
KeyPath = tuple[KeyStep, ...]  # from the top of a file to a value
FilePosition = tuple[int, int]  # line and column, 1-based
FilePositions = dict[KeyPath, FilePosition]  # of every value; that of a key itself is under (*path, "<key>")

MAX_DEPTH = 50  # collections within each other; a plan has ten
MOST_STEPS = 10_000_000  # of the paths of all values and keys, and ten for each: 600,000 of a plan
MAX_SHOWN_STEPS = 12  # steps of a path that a message shows
WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


def load_yaml(text: str, name: str) -> tuple[Any, FilePositions]:
    """Plain data, and the line and column of every value in it. Raises InputError."""
    control = Reader.NON_PRINTABLE.search(text)
    if control:
        before = text[: control.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        what = f"the control character U+{ord(control.group()):04X} is not allowed in YAML"
        raise InputError(what, where=f"{name}:{line}:{column}", fix="remove it")
    builder = DocumentBuilder(name)
    try:
        return builder.build(yaml.parse(text, Loader=Loader)), builder.places
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        what = f"this is not YAML: {error.problem or error.context}"
        raise InputError(what, where=where, fix="fix the syntax there") from error


def key_path_text(route: KeyPath) -> str:
    """A path as text: ('groups', 'g0', 'ranks', 2) as `groups.g0.ranks[2]`."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in route[:MAX_SHOWN_STEPS]]
    more = "…" if len(route) > MAX_SHOWN_STEPS else ""
    return one_line("".join([*steps, more])).removeprefix(".") or "the whole file"


class OpenCollection:
    """A mapping or a sequence whose end has not been parsed yet."""

    __slots__ = ("key", "route", "values")

    def __init__(self, values: dict[Any, Any] | list[Any], route: KeyPath) -> None:
        self.values, self.route = values, route
        self.key: tuple[Any, FilePosition] | None = None  # in a mapping, the key whose value comes next


class DocumentBuilder:
    """Assembles parser events into one document."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: FilePositions = {}
        self.steps = 0  # in all of their paths
        self.open: list[OpenCollection] = []
        self.top: list[Any] = []  # the document, once it has begun; at most one

    def build(self, events: Iterable[yaml.Event]) -> Any:
        """The document's data; None where the text is empty."""
        for event in events:
            mark = event.start_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            if isinstance(event, yaml.ScalarEvent):
                self.scalar(scalar(event), place)
            elif isinstance(event, yaml.MappingStartEvent):
                self.begin({}, place)
            elif isinstance(event, yaml.SequenceStartEvent):
                self.begin([], place)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.open.pop()
            elif isinstance(event, yaml.AliasEvent):
                raise self.parse_error("aliases (*name) are not supported", place, "write it out")
            elif isinstance(event, yaml.DocumentStartEvent) and self.top:
                raise self.parse_error("a second document begins here", place, "one document to a file")
        return self.top[0] if self.top else None

    def begin(self, values: dict[Any, Any] | list[Any], place: FilePosition) -> None:
        """Begins a collection, within the one that is open."""
        here = self.open[-1] if self.open else None
        if here and isinstance(here.values, dict) and here.key is None:
            raise self.parse_error("a key must be a word or a number", place, "use a plain key")
        if len(self.open) == MAX_DEPTH:
            raise self.parse_error("the file is nested too deeply", place, "flatten it")
        self.open.append(OpenCollection(values, self.put(values, place)))

    def scalar(self, value: Any, place: FilePosition) -> None:
        """Takes a scalar: a key, where one is due, or else a value."""
        here = self.open[-1] if self.open else None
        if here and isinstance(here.values, dict) and here.key is None:
            here.key = value, place
            if value in here.values:
                raise self.parse_error(f"the key `{value}` occurs twice", place, "remove one of the two")
        else:
            self.put(value, place)

    def put(self, value: Any, place: FilePosition) -> KeyPath:
        """Adds a value to the open collection; returns its path."""
        if not self.open:
            self.top.append(value)
            self.places[()] = place
            return ()
        here = self.open[-1]
        if isinstance(here.values, list):
            route: KeyPath = (*here.route, len(here.values))
            here.values.append(value)
        else:
            key, key_place = here.key or ("", place)
            route, here.key = (*here.route, key), None
            here.values[key] = value
            key_route: KeyPath = (*route, "<key>")
            self.places[key_route] = key_place
            self.steps += len(key_route) + 10
        self.places[route] = place
        self.steps += len(route) + 10
        if self.steps > MOST_STEPS:
            raise self.parse_error("the file has too many values", place, "give a smaller one")
        return route

    def parse_error(self, what: str, place: FilePosition, fix: str) -> InputError:
        """The error for what is not allowed at this place."""
        here = self.open[-1] if self.open else None
        route = (*here.route, here.key[0]) if here and here.key else here.route if here else ()
        return InputError(what, where=f"{self.name}:{place[0]}:{place[1]} ({key_path_text(route)})", fix=fix)


def scalar(event: yaml.ScalarEvent) -> Any:
    """The value of a plain scalar by YAML 1.2's core rules, and `3%` as 0.03; anything quoted is text."""
    text: str = event.value
    if event.style:  # quoted, or a block
        return text
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if match := PERCENTAGE.fullmatch(text):
        return float(match[1]) / 100
    if FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text
