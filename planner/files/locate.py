"""Where in a file an error is, and what would mend it: msgspec's messages made useful to a person."""

import difflib
import re
from typing import Any

import msgspec

from planner.errors import InputError
from planner.files.schema import schema_of
from planner.files.text import Places, Route, Step


def from_file(kind: type, value: Any) -> Any:
    """msgspec's hook: types that know how they stand in a file (`Ranks`) read themselves."""
    return kind.from_file(value)  # type: ignore[attr-defined]


def located(error: msgspec.ValidationError, data: Any, kind: type, name: str, places: Places) -> InputError:
    """msgspec's message with the place in the file that it speaks of."""
    message, _, path = str(error).partition(" - at `$")
    route = find_route(path.rstrip("`"), data, kind, str(error))
    unknown = re.search(r"unknown field `(.+)`", message)
    fix = "see the file's schema: planner schema"
    if unknown:
        key = unknown.group(1)
        message, fix = f"unknown key `{key}`", suggestion(key, kind, route)
        line, column = places.get((*route, key, "<key>"), places.get(route, (1, 1)))
        route = (*route, key)
    else:
        line, column = places.get(route, (1, 1))
        missing = re.search(r"missing required field `(.+)`", message)
        if missing:
            message, fix = f"the key `{missing.group(1)}` is missing", f"add `{missing.group(1)}:` here"
        elif message.startswith("Expected"):
            fix = f"write {message.removeprefix('Expected ').split(',')[0]} here"
        elif " | " in message:  # specs say `what is wrong | what to do`
            message, _, fix = message.partition(" | ")
    return InputError(message, where=f"{name}:{line}:{column} ({spell(route)})", fix=fix)


def spell(route: Route) -> str:
    """('groups', 'g0', 'ranks', 2) as `groups.g0.ranks[2]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in route)
    return text.lstrip(".") or "the whole file"


def find_route(path: str, data: Any, kind: type, complaint: str) -> Route:
    """msgspec's `.groups[...].ranks[2]` as keys and indices; `[...]` hides a key, found by leaving out its siblings."""
    route: Route = ()
    here = data
    for step in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", path):
        key: Step = step[0] or (int(step[1]) if step[1] != "..." else hidden_key(route, here, data, kind, complaint))
        try:
            here = here[key]
        except (KeyError, IndexError, TypeError):
            return route
        route = (*route, key)
    return route


def hidden_key(route: Route, here: Any, data: Any, kind: type, complaint: str) -> Step:
    """The key of mapping `here` without whose siblings `data` still draws the same complaint."""
    keys = list(here) if isinstance(here, dict) else []
    for key in keys:
        try:
            msgspec.convert(replaced(data, route, {key: here[key]}), kind, strict=True, dec_hook=from_file)
        except msgspec.ValidationError as error:
            if str(error) == complaint:
                return key  # type: ignore[no-any-return]
    return keys[0] if keys else 0


def replaced(data: Any, route: Route, value: Any) -> Any:
    """A copy of `data` with `value` at `route`."""
    if not route:
        return value
    changed = replaced(data[route[0]], route[1:], value)
    if isinstance(data, dict):
        return {**data, route[0]: changed}
    return [changed if index == route[0] else item for index, item in enumerate(data)]


def suggestion(key: str, kind: type, route: Route) -> str:
    """What an unknown key was probably meant to be, from the whole schema of `kind`."""
    schema = msgspec.json.schema_components((kind,), schema_hook=schema_of)[1]
    known = {name for part in schema.values() for name in part.get("properties", {})}
    close = difflib.get_close_matches(key, sorted(known), n=1)
    return f"did you mean `{close[0]}`?" if close else f"remove it, nothing under {spell(route)} is called so"
