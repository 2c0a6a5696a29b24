"""Fields of a layout as `why-not` takes them, read as strictly as a job's `fix.layouts`."""

from typing import ClassVar

from planner import files
from planner.errors import InputError
from planner.specs.base import Name, Spec
from planner.specs.parallelism import Parallelism, decided_fields


class Words(Spec):
    """Changes as a file, so that they are read as strictly as a job's `fix.layouts`."""

    FORMAT: ClassVar[str] = "planner.changes/1"
    format: str
    layouts: dict[Name, Parallelism]


def parsed_wish(module: str, field: str, value: str, word: str) -> Parallelism:
    """A field of a module's layout, or all of it, as a job says it. Raises InputError."""
    if field == "recompute" and "," in value and value[0] not in "[{":
        value = f"[{value}]"
    lines = f"{module}: {value}" if not field else f"{module}:\n    {field}: {value}"
    text = f"format: {Words.FORMAT}\nlayouts:\n  {lines}\n"
    try:
        wish = files.parse(text, Words, word).layouts[module]
    except InputError as error:
        raise InputError(error.message, where=word, fix=error.fix) from error
    if not decided_fields(wish):
        raise InputError(f"`{word}` changes nothing", where=word, fix="give a value")
    return wish
