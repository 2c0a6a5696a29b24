"""Parses TOML text to plain data, with the line of every key."""

import re
import sys
from typing import Any

from planner.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTION = re.compile(r"\s*\[([\w.\"-]+)\]")
KEY = re.compile(r"[\w-]+(?=\"?\s*=)")


def load_toml(text: str, name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Plain data, and the line of every key by its dotted name. Raises InputError."""
    try:
        return tomllib.loads(text), key_lines(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{name}:{line[1]}" if line else name
        raise InputError(f"this is not TOML: {error}", where=where, fix="fix the syntax there") from error


def key_lines(text: str) -> dict[str, int]:
    """The line of each key, those of an inline table under its name."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := SECTION.match(line):
            section = f"{header[1]}."
        else:
            first, *inner = KEY.findall(line.partition("#")[0]) or [""]
            for key in (f"{section}{first}", *(f"{section}{first}.{each}" for each in inner)):
                lines.setdefault(key, number)
    return lines
