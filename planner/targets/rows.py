"""Rows of a table that is read in both directions: fields of a launch ↔ arguments of the program that is launched.

A field is a path into a `Launch`: `layout.tp`, `module.moe.topk`, `sequences`. A row is usually one field and one
argument (`number`, `switch`, `word`); what several arguments say together is a `Row` with functions of its own. What an
argument means where nobody says it stands in its row alone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError

Fields = Mapping[str, Any]
Arguments = Mapping[str, tuple[str, ...]]  # by name, with its values; a switch has none
Default = Any  # a value, or a function of the fields that are known by then; REQUIRED where there is none
REQUIRED = object()
MOST = 10**9  # of a whole number


@dataclass(frozen=True, slots=True)
class Stated:
    """The arguments of a file, each with its place there; those whose value it does not say, each with the name of what
    it computes and why that is not known; and those it does not say, with the defaults that were taken.
    """

    values: Arguments
    places: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    unknown: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)

    def __contains__(self, argument: object) -> bool:
        return argument in self.values

    def many(self, argument: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The values of an argument. Raises InputError where the file computes them."""
        if argument in self.unknown:
            name, why = self.unknown[argument]
            fix = f"--set {name}=VALUE" if name else "write it out in the file"
            raise self.error(argument, f"{name or 'its value'} {why}", fix)
        return self.values.get(argument, default)

    def one(self, argument: str) -> str:
        """The only value of an argument. Raises InputError."""
        values = self.many(argument)
        if len(values) != 1:
            told = f"{len(values)} values" if values else "no value"
            raise self.error(argument, f"it has {told}", f"{argument} VALUE")
        return values[0]

    def integer(self, argument: str, default: Default = REQUIRED, most: int = MOST) -> int:
        """A whole number from 0 to `most`. Raises InputError."""
        text = self.value(argument, default)
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= most):
            fix = f"such as {argument} 8, and at most {most:,}"
            raise self.error(argument, f"`{text[:40]}` is no whole number that it can be", fix)
        return int(text)

    def number(self, argument: str, default: Default = REQUIRED) -> float:
        """A number. Raises InputError."""
        text = self.value(argument, default)
        try:
            return float(text)
        except ValueError as error:
            raise self.error(argument, f"`{text[:40]}` is no number", f"such as {argument} 1.5") from error

    def value(self, argument: str, default: Default = REQUIRED) -> str:
        """The value of an argument as text; the default, which is noted, where it is not said. Raises InputError."""
        if argument in self.values:
            return self.one(argument)
        if default is REQUIRED:
            raise InputError(f"{argument} is not said", where=self.file, fix=f"add {argument} VALUE")
        self.defaults[argument] = str(default)
        return str(default)

    def choice(self, argument: str, values: Iterable[str], default: Default = REQUIRED) -> str:
        """The value of an argument, one of these. Raises InputError."""
        text, known = self.value(argument, default), [*values]
        if text not in known:
            raise self.error(argument, f"`{text[:40]}` is none that a plan can have", f"one of {', '.join(known)}")
        return text

    def error(self, argument: str, message: str, fix: str) -> InputError:
        """What is wrong with an argument, at its place in the file."""
        place = self.places.get(argument, self.file)
        return InputError(message, where=f"{place} ({argument})" if place else argument, fix=fix)


Condition = Callable[[Fields], bool]


def usually(fields: Fields) -> bool:
    """A row without a condition applies."""
    return True


@dataclass(frozen=True, slots=True)
class Row:
    """Fields that arguments say: `write` gives the arguments of fields, none where the program's defaults say them;
    `read` the fields of arguments, those that are not said by default. A row that does not apply `when` the fields are
    so is neither written nor read.
    """

    fields: tuple[str, ...]
    valued: tuple[str, ...]  # arguments with values
    switches: tuple[str, ...]  # and those without
    write: Callable[[Fields], Arguments]
    read: Callable[[Stated, Fields], Fields]
    when: Condition = usually

    @property
    def arguments(self) -> tuple[str, ...]:
        """Every argument that is its own."""
        return (*self.valued, *self.switches)


def number(
    name: str,
    argument: str,
    default: Default = REQUIRED,
    kind: type = int,
    when: Condition = usually,
    most: int = MOST,
) -> Row:
    """A field that is a number, of this kind; a whole one at most `most`."""

    def value(fields: Fields) -> Default:
        return default(fields) if callable(default) else default

    def write(fields: Fields) -> Arguments:
        own = fields.get(name)
        return {} if own is None or own == value(fields) else {argument: (f"{own:g}" if kind is float else str(own),)}

    def read(stated: Stated, fields: Fields) -> Fields:
        usual = value(fields)
        if argument not in stated and usual is None:
            return {}
        return {name: stated.integer(argument, usual, most) if kind is int else stated.number(argument, usual)}

    return Row((name,), (argument,), (), write, read, when)


def switches(names: tuple[str, ...], meanings: Mapping[Any, tuple[str, ...]], when: Condition = usually) -> Row:
    """Fields that arguments without values say together: value, or values of several fields → those that are given."""
    known = tuple(dict.fromkeys(argument for given in meanings.values() for argument in given))

    def write(fields: Fields) -> Arguments:
        own = tuple(fields[name] for name in names)
        return dict.fromkeys(meanings.get(own if len(own) > 1 else own[0], ()), ())

    def read(stated: Stated, fields: Fields) -> Fields:
        given = {argument for argument in known if argument in stated}
        found = [value for value, wanted in meanings.items() if given == {*wanted}]
        if not found:
            first, *others = (argument for argument in known if argument in given)
            raise stated.error(first, f"it does not go with {' and '.join(others)}", "one of them")
        return dict(zip(names, found[0] if len(names) > 1 else found, strict=False))

    return Row(names, (), known, write, read, when)


def switch(name: str, argument: str, on: Any = True, off: Any = False, when: Condition = usually) -> Row:
    """A field that an argument without a value turns on."""
    return switches((name,), {on: (argument,), off: ()}, when)


def word(name: str, argument: str, words: Mapping[Any, str], default: Any, when: Condition = usually) -> Row:
    """A field with values that the program has other words for."""
    meanings = {text: value for value, text in words.items()}

    def write(fields: Fields) -> Arguments:
        own = fields[name]
        return {argument: (words[own],)} if own != default and own in words else {}

    def read(stated: Stated, fields: Fields) -> Fields:
        return {name: meanings[stated.choice(argument, meanings, words[default])]}

    return Row((name,), (argument,), (), write, read, when)


def write_rows(rows: Iterable[Row], fields: Fields) -> dict[str, tuple[str, ...]]:
    """The arguments of a launch, in the order of the rows. Raises InputError where a row cannot say its fields."""
    arguments: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row.when(fields):
            arguments |= row.write(fields)
    return arguments


def read_rows(rows: Iterable[Row], stated: Stated, known: Fields) -> dict[str, Any]:
    """The fields of a file's arguments, beside those that are known without it. Raises InputError."""
    fields = dict(known)
    for row in rows:
        if row.when(fields):
            fields |= row.read(stated, fields)
    return fields


def read_stated(rows: Iterable[Row], stated: Stated, known: Fields) -> dict[str, Any]:
    """The fields of those arguments that are stated, none of rows whose arguments are all left out, beside those that
    are known. Raises InputError.
    """
    fields = dict(known)
    for row in rows:
        own = any(argument in stated for argument in row.arguments)
        fields |= row.read(stated, fields) if own and row.when(fields) else {}
    return fields


def row_of(rows: Iterable[Row], name: str) -> Row | None:
    """The row that says a field, or what the field is a part of."""
    return next((row for row in rows if any(name == each or name.startswith(f"{each}.") for each in row.fields)), None)
