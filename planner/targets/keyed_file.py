"""Settings of a TOML, YAML or JSON file as arguments by their dotted names, `parallelism.tensor_parallel_degree`, each
with its line; and settings written as such a file.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner import files
from planner.errors import InputError
from planner.targets.rows import Arguments, Default, Fields, Row, Stated

PLAIN = re.compile(r"-?[0-9]+|true|false")


def always(name: str, key: str, default: Default, kind: type = int) -> Row:
    """A field that is a number or a truth, written whatever it is; where nobody says it, the default."""

    def write(fields: Fields) -> Arguments:
        return {key: (str(fields[name]).lower(),)}

    def read(stated: Stated, fields: Fields) -> Fields:
        if kind is bool:
            return {name: is_true(stated, key, default)}
        return {name: stated.integer(key, default)}

    return Row((name,), (key,), (), write, read)


def only(key: str, *values: str) -> Row:
    """A setting of which plans know these values alone, all the same to them. Any other is refused."""

    def read(stated: Stated, fields: Fields) -> Fields:
        if key in stated:
            stated.choice(key, values)
        return {}

    return Row((), (key,), (), lambda fields: {}, read)


def named(section: str, words: str) -> frozenset[str]:
    """Settings that begin alike."""
    return frozenset(f"{section}{word}" for word in words.split())


def is_true(stated: Stated, key: str, default: bool) -> bool:
    """Whether a setting is true. Raises InputError where it is neither."""
    return stated.choice(key, ("true", "false"), str(default).lower()) == "true"


def stated_settings(content: Any, places: Mapping[str, int], name: str, given: Mapping[str, str]) -> Stated:
    """The settings of a file's content, and those that are given beside it, or for `auto`. `$NAME` is a hole."""
    values = dict(flat(content)) | {key: (value,) for key, value in given.items()}
    holes: dict[str, tuple[str, str]] = {}
    for key, own in values.items():
        if own[:1] == ("auto",):
            holes[key] = (key, "is left to its script")
        elif own and own[0][:1] == "$":
            holes[key] = (own[0][1:], "is left to who runs it")
    lines = {key: f"{name}:{places.get(key, 1)}" for key in values if key not in given}
    return Stated(values, lines, name, holes)


def flat(content: Any, path: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every setting by its dotted name, with its values as text."""
    for key, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", tuple(map(text_of, value)) if isinstance(value, list) else (text_of(value),)


def text_of(value: Any) -> str:
    """A value as it is written on a command line; a list with commas."""
    if isinstance(value, list):
        return ",".join(map(text_of, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def read_toml(text: str, name: str, given: Mapping[str, str]) -> Stated:
    """The settings of a TOML file. Raises InputError."""
    return stated_settings(*files.load_toml(text, name), name, given)


def read_yaml(text: str, name: str, given: Mapping[str, str]) -> Stated:
    """The settings of a YAML or JSON file. Raises InputError."""
    content, positions = files.load_yaml(text, name)
    if not isinstance(content, dict):
        raise InputError("it is no mapping of settings", where=name, fix="key: value, and so on")
    places = {".".join(map(str, path)): line for path, (line, _) in positions.items()}
    return stated_settings(content, places, name, given)


def nested(arguments: Arguments, lists: Mapping[str, int]) -> dict[str, Any]:
    """Settings by their dotted names as mappings in mappings, with numbers and truths as such. `lists`: how deep those
    are that are lists, one or two.
    """
    content: dict[str, Any] = {}
    for name, values in arguments.items():
        *path, last = name.split(".")
        at = content
        for key in path:
            at = at.setdefault(key, {})
        whole = [each.split(",") for each in values] if lists.get(name) == 2 else [plain(each) for each in values]
        at[last] = whole if name in lists else whole[0]
    return content


def plain(text: str) -> Any:
    """What a value's text stands for."""
    return json.loads(text) if PLAIN.fullmatch(text) else text


def toml_text(content: Mapping[str, Any], path: str = "") -> str:
    """Plain data as TOML, a table for each mapping."""
    own = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    tables = [toml_text(value, f"{path}{key}.") for key, value in content.items() if isinstance(value, dict)]
    head = [f"[{path[:-1]}]"] if own and path else []
    return "\n".join(["\n".join([*head, *own, ""])] * bool(own) + tables)
