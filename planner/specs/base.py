"""The base class of all structs in files, in which fields two of them differ, and small types that several use."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec

from planner.errors import InputError
from planner.units import parse_share

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):  # what type checkers need to know about the defaults of Spec's subclasses
        return lambda cls: cls


# Every quantity has a limit, far beyond real ones: arithmetic stays finite, and a typing error fills no memory.
MAX_RANKS = 2**17
Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Index = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
LayerCount = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
SampleCount = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.+-]+$")]  # of modules and groups; task ids contain them
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Positive = Annotated[float, msgspec.Meta(ge=1e-6, le=1e15)]  # of divisors
PERCENTAGE = {"pattern": r"^\d+(\.\d+)? ?%$"}  # in schemas, beside a number from 0 to 1
Share = Annotated[float, msgspec.Meta(ge=0, le=1, extra_json_schema=PERCENTAGE)]
Source = Literal["measured", "fitted", "published", "analytic"]  # in that order of trust


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen mapping in a file. An unknown key is an error; a `ValueError` has the text `what is wrong | what to do`.

    msgspec does not inherit `kw_only`: repeat it where a required field follows an optional one.
    """


S = TypeVar("S", bound=Spec)
UNSET = msgspec.UNSET  # of a field that an answer does not have
UnsetType = msgspec.UnsetType


def with_fields(spec: S, **fields: Any) -> S:
    """Return a copy with other values in these fields. Raises InputError where fields exclude each other."""
    try:
        return msgspec.structs.replace(spec, **fields)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, fix=fix) from error


def spec_of(kind: type[S], fields: Mapping[str, Any]) -> S:
    """Return a spec of plain values, which are checked as a file's are. Raises InputError where they exclude each other
    or are out of their limits.
    """
    values = dict(fields)
    for name, expected in get_type_hints(kind, include_extras=True).items():
        if name in fields and not isinstance(fields[name], Spec | tuple | dict):
            try:
                values[name] = msgspec.convert(fields[name], expected)
            except msgspec.ValidationError as error:
                told = str(error).replace("Expected", "expected")
                raise InputError(f"{name} is {fields[name]}: {told}", fix="another value") from error
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, fix=fix or "other values") from error


def share_of(text: str, where: str) -> float:
    """The share that was typed, such as `3%`; `where`: the option or key, for errors. Raises InputError."""
    try:
        return parse_share(text)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=where, fix=fix) from error


RANGES = re.compile(r"[0-9]{1,8}(-[0-9]{1,8})?([,+][0-9]{1,8}(-[0-9]{1,8})?)*")


class Indices(tuple[int, ...]):
    """Sorted, distinct indices, written as ranges in files: `0-31`, `0-1,4-5`, `7`."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "Indices":
        text = str(value)
        if not isinstance(value, (int, str)) or not RANGES.fullmatch(text):
            raise ValueError(f"`{text}` is no set of indices | write it like 0-31, or 0-1,4-5, or 7")
        indices: list[int] = []
        for part in re.split("[,+]", text):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if high < low or (indices and low <= indices[-1]) or high >= MAX_RANKS:
                raise ValueError(f"the indices in `{text}` do not rise | write each once, in rising order")
            indices.extend(range(low, high + 1))
        return cls(indices)

    def to_file(self) -> str | int:
        text = str(self)
        return int(text) if text.isdigit() else text

    def __str__(self) -> str:
        return ranges_text(self)

    @staticmethod
    def schema() -> dict[str, Any]:
        return {
            "type": ["string", "integer"],
            "description": "indices as ranges: 0-31, or 0-1,4-5, or 7",
            "examples": [0],
        }


@lru_cache(maxsize=65536)  # task ids contain these
def ranges_text(indices: tuple[int, ...]) -> str:
    """Format (0, 1, 2, 7) as `0-2,7`."""
    parts: list[list[int]] = []
    for index in indices:
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


class RankChoice:
    """What a job says of the ranks of a module: which they are, or `first_stage`, to be found from another layout."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "RankChoice":
        if value == FirstStage.WORD:
            return FirstStage()
        try:
            return Ranks(Indices.from_file(value))
        except ValueError as error:
            raise ValueError(f"{error}; or {FirstStage.WORD}") from error

    @staticmethod
    def schema() -> dict[str, Any]:
        described = Indices.schema()
        return {**described, "description": f"{described['description']}; or {FirstStage.WORD}"}


class FirstStage(RankChoice):
    """The ranks of the first pipeline stage of the module that reads this one's outputs."""

    __slots__ = ()
    WORD = "first_stage"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FirstStage)

    def __hash__(self) -> int:
        return hash(self.WORD)

    def __repr__(self) -> str:
        return self.WORD

    def to_file(self) -> str:
        return self.WORD


class Ranks(Indices, RankChoice):
    """Ranks of a job, in rising order."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "Ranks":
        return cls(Indices.from_file(value))

    @staticmethod
    def schema() -> dict[str, Any]:
        return Indices.schema()


class Layers(Indices):
    """Layers of a module, counted from 0, in rising order."""

    __slots__ = ()


class Difference(NamedTuple):
    """A field in which two specs differ, and its two values."""

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
