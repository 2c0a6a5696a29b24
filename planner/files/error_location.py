"""Turns an error of msgspec's validation into one with file, line, column, key path, and a fix."""

import difflib
import re
from typing import Any, NamedTuple

import msgspec

from planner.errors import InputError
from planner.files.format_schema import keys_at, words_at
from planner.files.yaml_text import FilePosition, FilePositions, KeyPath, KeyStep, key_path_text
from planner.printable import one_line

COMPLAINT = re.compile(
    r"(?P<what>.*?)(?: - at (?P<of_key>`key` in )?`\$(?P<path>(?:\.\w+|\[\d+\]|\[\.\.\.\])*)`)?", re.DOTALL
)
TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
QUOTED_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?")
LONGEST = 40  # characters of a value that a message quotes
MOST_MEANT = 3  # suggestions


class FileError(NamedTuple):
    """An error in a file: what is wrong, the fix, and the path of the value or key."""

    message: str
    fix: str
    route: KeyPath
    key: bool = False  # whether the key at `route` is meant, not its value
    missing: str = ""  # the key that the mapping at `route` lacks

    def position(self, places: FilePositions) -> FilePosition:
        """Line and column of the key or value; of the nearest that is there."""
        routes = [(*self.route, "<key>")] * self.key + [self.route[:n] for n in range(len(self.route), -1, -1)]
        return next((places[route] for route in routes if route in places), (1, 1))


def from_file(kind: type, value: Any) -> Any:
    """The decoding hook of msgspec: types with a form of their own in files (`Ranks`) parse themselves."""
    return kind.from_file(value)  # type: ignore[attr-defined]


def find_error(error: msgspec.ValidationError, data: Any, kind: type) -> FileError:
    """What an error of msgspec is about: its place in the data, reworded, with a fix."""
    complaint = COMPLAINT.fullmatch(str(error))
    what, path = (complaint["what"], complaint["path"] or "") if complaint else (str(error), "")
    route = find_key_path(path, data, kind, str(error))
    if complaint and complaint["of_key"]:
        key = offending_key(route, value_at(data, route), data, kind, str(error))
        return explained_error(what, key, kind, (*route, key))._replace(key=True)
    return explained_error(what, value_at(data, route), kind, route)


def input_error(finding: FileError, name: str, places: FilePositions) -> InputError:
    """A finding as an InputError with its place in the file."""
    line, column = finding.position(places)
    where = f"{name}:{line}:{column} ({key_path_text(finding.route)})"
    return InputError(finding.message, where=where, fix=finding.fix)


def explained_error(what: str, value: Any, kind: type, route: KeyPath) -> FileError:
    """A message of msgspec about `value`, reworded, with a fix."""
    field = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if field:
        known = keys_at(kind, route)
        fix = other_names(kind).get(field[1]) or nearest_word(field[1], known)
        fix = fix or f"remove it, or use one of {', '.join(known)}"
        return FileError(f"unknown key `{shortened(field[1])}`", fix, (*route, field[1]), key=True)
    missing = re.fullmatch(r"Object missing required field `(.+)`", what)
    if missing:
        return FileError(f"the key `{missing[1]}` is missing", f"add `{missing[1]}:` here", route, missing=missing[1])
    expected = re.match(r"Expected `([^`]+)`([^,]*)", what)
    if expected:
        wanted = " or ".join(TYPE_NAMES.get(word, word) for word in expected[1].split(" | ")) + expected[2]
        if "matching regex" in wanted:
            wanted = "a name of letters, digits and any of _ . + -"
        quoted = isinstance(value, str) and QUOTED_NUMBER.fullmatch(value)
        this, fix = ("the text ", ", without quotes") if quoted else ("", "")
        if isinstance(value, list) and "of length" in wanted:
            return FileError(f"expected {wanted}, this is one of {len(value)}", f"write {wanted} here", route)
        if wanted.endswith("<= 1.0") and isinstance(value, (int, float)) and 1 < value <= 100:
            fix = f"{value:g}%, where percent are meant"
            return FileError(f"expected {wanted}, this is {value_text(value)}", fix, route)
        return FileError(f"expected {wanted}, this is {this}{value_text(value)}", f"write {wanted} here{fix}", route)
    if " | " in what:  # specs say `what is wrong | what to do`
        message, _, fix = what.rpartition(" | ")
        return FileError(message, fix, route)
    return FileError(f"{value_text(value)} is not possible here", suggestion(str(value), words_at(kind, route)), route)


def other_names(kind: type) -> dict[str, str]:
    """Keys by which other programs call something, and how it is said in this kind of file."""
    return getattr(kind, "OTHER_NAMES", {})


def suggestion(word: str, known: list[str]) -> str:
    """The fix for a word that is none of those known."""
    if not known:
        return "`planner schema` shows what may stand here"
    return nearest_word(word, known) or f"one of {', '.join(known)}"


def nearest_word(word: str, known: list[str]) -> str:
    """A suggestion of the known words that may have been meant; empty where none is close."""
    meant = nearest_names(word, known)
    return f"did you mean {' or '.join(f'`{each}`' for each in meant)}?" if meant else ""


def nearest_names(word: str, known: list[str]) -> list[str]:
    """The known words that may have been meant, by their whole or what is before their first dash."""
    meant: dict[str, list[str]] = {}
    others = [each for each in known if each != word]
    for each in others:
        meant.setdefault(each.partition("-")[0], []).append(each)
    meant |= {each: [each] for each in others}
    close = difflib.get_close_matches(word[:LONGEST].lower(), sorted(meant), n=1)
    return meant[close[0]][:MOST_MEANT] if close else []


def value_text(value: Any) -> str:
    """A value as text for a message: short, and as a file writes it."""
    if isinstance(value, (dict, list)):
        return TYPE_NAMES["object" if isinstance(value, dict) else "array"]
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    return f"`{shortened(str(value))}`"


def shortened(text: str) -> str:
    """A text on one line, cut to a length that a message can quote."""
    shown = one_line(text[:LONGEST])
    return shown if len(text) <= LONGEST else f"{shown}…"


def value_at(data: Any, route: KeyPath) -> Any:
    """The value at a path in plain data."""
    for step in route:
        data = data[step]
    return data


def find_key_path(path: str, data: Any, kind: type, complaint: str) -> KeyPath:
    """A path of msgspec, `.groups[...].ranks[2]`, as keys and indices; `[...]` hides a key."""
    route: KeyPath = ()
    here = data
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        key: KeyStep = name or (int(index) if index != "..." else offending_key(route, here, data, kind, complaint))
        try:
            here = here[key]
        except (KeyError, IndexError, TypeError):
            return route
        route = (*route, key)
    return route


def offending_key(route: KeyPath, here: Any, data: Any, kind: type, complaint: str) -> KeyStep:
    """The key of the mapping `here` that causes the error, by bisection over its first keys."""
    keys = list(here) if isinstance(here, dict) else [0]
    too_few, enough = 0, len(keys)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        kept = {key: here[key] for key in keys[:middle]}
        if raises_same_error(with_value(data, route, kept), kind, complaint):
            enough = middle
        else:
            too_few = middle
    return keys[enough - 1]


def raises_same_error(data: Any, kind: type, complaint: str) -> bool:
    """Whether converting the data raises just this error."""
    try:
        msgspec.convert(data, kind, strict=True, dec_hook=from_file)
    except msgspec.ValidationError as error:
        return str(error) == complaint
    return False


def with_value(data: Any, route: KeyPath, value: Any) -> Any:
    """A copy of `data` with `value` at `route`."""
    if not route:
        return value
    changed = with_value(data[route[0]], route[1:], value)
    if isinstance(data, dict):
        return {**data, route[0]: changed}
    return [changed if index == route[0] else item for index, item in enumerate(data)]
