"""In which fields two specs differ, down to the smallest ones."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from planner.specs.base import Spec


class Difference(NamedTuple):
    field: str  # its path: `moe.topk`; empty: the whole
    one: Any
    other: Any


def differences(one: Any, other: Any, path: str = "") -> Iterator[Difference]:
    """Every field in which two values differ; of specs of one kind field by field."""
    if isinstance(one, Spec) and type(one) is type(other):
        for name in one.__struct_fields__:
            yield from differences(getattr(one, name), getattr(other, name), f"{path}.{name}" if path else name)
    elif one != other:
        yield Difference(path, one, other)


def value_text(value: Any) -> str:
    """A value as it would be written in a file or on the command line."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if not isinstance(value, Spec):
        return "none" if value is None else str(value)
    tag = value.__struct_config__.tag
    return tag if isinstance(tag, str) else type(value).__name__.lower()
