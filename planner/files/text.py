"""YAML text to plain data, with the line and column of every value.

Only YAML 1.2's scalars are understood (`1e9` is a number, `on` is a word), duplicate keys and aliases are refused, and
nothing is ever executed.
"""

import re
from typing import Any

import yaml

from planner.errors import InputError

try:  # libyaml when present: about ten times faster
    from yaml import CSafeLoader as Loader
except ImportError:  # pragma: no cover - depends on how PyYAML was built
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

Step = str | int  # a key or an index on the way from the top of a file to a value
Route = tuple[Step, ...]
Places = dict[Route, tuple[int, int]]  # line and column, 1-based; a key's own place is at (*route, "<key>")

WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


def load(text: str, name: str) -> tuple[Any, Places]:
    """Plain data, and the line and column of every value in it."""
    try:
        node = yaml.compose(text, Loader=Loader)
        places: Places = {}
        return (build(node, (), places, set(), name) if node is not None else None), places
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable text"
        raise InputError(f"this is not YAML: {problem}", where=where, fix="mend the syntax there") from error
    except RecursionError as error:
        raise InputError("the file is nested too deeply", where=name, fix="flatten it") from error


def build(node: yaml.Node, route: Route, places: Places, seen: set[int], name: str) -> Any:
    """The value of one YAML node; fills `places`."""
    mark = node.start_mark
    places[route] = (mark.line + 1, mark.column + 1)
    if isinstance(node, yaml.ScalarNode):
        return scalar(node)
    if id(node) in seen:
        raise InputError(
            "aliases (*name) are not supported", where=f"{name}:{mark.line + 1}:{mark.column + 1}", fix="write it out"
        )
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return [build(child, (*route, i), places, seen, name) for i, child in enumerate(node.value)]
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        place = f"{name}:{key_node.start_mark.line + 1}:{key_node.start_mark.column + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError("a key must be a word or a number", where=place, fix="use a plain key")
        key = scalar(key_node)
        if key in result:
            raise InputError(f"the key {key!r} stands twice", where=place, fix="remove one of the two")
        result[key] = build(value_node, (*route, key), places, seen, name)
        key_route: Route = (*route, key, "<key>")
        places[key_route] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
    return result


def scalar(node: yaml.ScalarNode) -> Any:
    """A plain scalar by YAML 1.2's core rules; anything quoted is text."""
    text: str = node.value
    if node.style:  # quoted, or a block
        return text
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text
