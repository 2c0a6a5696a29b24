"""A program that trains, as a table: what it is told, in which versions, and how its file is written and read."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from planner import files
from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.specs.base import Difference, differences
from planner.specs.layers import Module
from planner.targets.launch import Launch, canonical, fields_of, launch_of
from planner.targets.launch_command import LaunchCommand
from planner.targets.launchers import ConfigFile
from planner.targets.rows import Arguments, Row, Stated, read_rows, row_of, write_rows

OFF = (("0",), ("0.0",))  # values with which an argument changes nothing


class WrittenLaunch(NamedTuple):
    """What a file is written of: the launch, its arguments, and lines that say what it is."""

    launch: Launch
    arguments: Arguments
    version: str
    about: tuple[str, ...]


class Target(NamedTuple):
    """A table of rows, read in both directions, and what stands around it."""

    name: str
    what: str  # the file is called on screens
    software: str  # of profiles/software, whose knobs say which layouts it can launch
    checked: str  # the release whose own parser read its files
    versions: tuple[str, ...]  # that files are written for, the newest first
    since: Mapping[str, str]  # argument → the version that first has it; left out: all have it
    modules: tuple[type[Module], ...]  # kinds that it trains
    rows: tuple[Row, ...]
    programs: tuple[str, ...]  # what a file that is read may start
    unpriced: frozenset[str]  # arguments that change a step in ways that no plan knows
    other: frozenset[str]  # arguments that change no step
    switches: frozenset[str]  # arguments without a value
    write: Callable[[WrittenLaunch], str]
    read: Callable[[str, str, Mapping[str, str]], LaunchCommand]  # text, name of the file, values for what it computes
    started: Mapping[str, ConfigFile] = {}  # version → how a file that is no script is started
    outside: tuple[str, ...] = ()  # fields of a launch that its file says by name alone, or leaves to the program
    idle: Mapping[str, str] = {}  # switch → the argument without which it changes nothing, and is not written
    beside: "tuple[Target, ...]" = ()  # what is told of encoders beside an LLM: on ranks of their own, or on all


class ReadLaunch(NamedTuple):
    """What a file starts, and of its arguments those that change a step as no plan knows, or change nothing; and what
    its launcher says of ranks.
    """

    target: Target
    launch: Launch
    stated: Stated
    unpriced: tuple[str, ...]
    command: LaunchCommand


def chosen_version(target: Target, version: str) -> str:
    """The version that a file is written for; empty: the newest. Raises InputError."""
    if version and version not in target.versions:
        fix = f"one of {', '.join(target.versions)}"
        raise InputError(f"no files are written for {target.name} {version[:20]}", where="--version", fix=fix)
    return version or target.versions[0]


def number_of(version: str) -> tuple[int, ...]:
    """A version that can be compared."""
    return tuple(int(part) for part in version.split("."))


def arguments_of(target: Target, launch: Launch, version: str) -> dict[str, tuple[str, ...]]:
    """What the program is told to start this. It is read back: what comes out otherwise, no argument says. Raises
    InputError naming the field.
    """
    meant = canonical(launch)
    arguments = write_rows(target.rows, fields_of(meant) | {"version": number_of(version)})
    for argument in arguments:
        if number_of(target.since.get(argument, "0")) > number_of(version):
            message = f"{target.name} {version} has no {argument}, which says this plan"
            raise InputError(message, where="--version", fix=f"--version {target.since[argument]}, or later")
    fields = fields_of(meant)
    given = {name: fields[name] for name in ("ranks", "per_node", "blackwell", *target.outside)}
    try:
        told = canonical(launch_of(read_rows(target.rows, Stated(arguments), given)))
    except InputError as error:
        row = next((row for row in target.rows if error.where in row.arguments), None)
        raise InputError(error.message, where=row.fields[0] if row else error.where, fix=error.fix) from error
    lost = next(differences(meant, told), None)
    if lost:
        raise unsaid(target, lost, arguments)
    return arguments


def unsaid(target: Target, lost: Difference, arguments: Arguments) -> InputError:
    """The error for a field that no argument says."""
    row = row_of(target.rows, lost.field)
    told = f"; {row.arguments[0]} says {shown(lost.other)}" if row and row.arguments else ""
    message = f"{target.name} has no argument for {lost.field}: {shown(lost.one)}{told}"
    return InputError(message, where=lost.field, fix=f"{lost.field.rpartition('.')[2]}: {shown(lost.other)}")


def shown(value: Any) -> str:
    """A field's value in a message."""
    text = "none" if value is None else flow_text(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def read_target(
    target: Target, text: str, name: str, given: Mapping[str, str], known: Callable[[LaunchCommand], dict[str, Any]]
) -> ReadLaunch:
    """What a file starts. `known`: fields that the file does not say, such as ranks, from its launcher or in its place.

    Raises InputError for arguments that are not known, that exclude each other, or that the file computes.
    """
    command = target.read(text, name, given)
    other = next((each for each in target.beside if starts(each, command.program)), None)
    if other:
        return read_target(other, text, name, given, known)
    if not starts(target, command.program):
        programs = [program for each in (target, *target.beside) for program in each.programs]
        message = f"it starts {command.program[:60]}, and files are read that start {' or '.join(programs)}"
        raise InputError(message, where=name, fix="one of these; planner import hf reads models of other kinds")
    stated = command.stated
    require_known(target, stated)
    fields = read_rows(target.rows, stated, known(command))
    try:
        launch = canonical(launch_of(fields))
    except InputError as error:
        raise located(target, stated, error) from error
    unpriced = [each for each, values in stated.values.items() if each in target.unpriced and values not in OFF]
    return ReadLaunch(target, launch, stated, (*unpriced, *without_effect(target.rows, stated, fields)), command)


def starts(target: Target, program: str) -> bool:
    """Whether a program is one of a target's, in whatever folder."""
    return any(program == own or program.endswith(f"/{own}") for own in target.programs)


def require_known(target: Target, stated: Stated) -> None:
    """Raises InputError for an argument of which a plan does not know what it changes, or a switch with a value."""
    own = {argument for row in target.rows for argument in row.arguments}
    known = own | target.unpriced | target.other
    for argument, values in stated.values.items():
        if argument not in known:
            near = files.nearest_word(argument, sorted(known))
            message = "it is not known what it changes, and nothing is read by half"
            raise stated.error(argument, message, near or "leave it out, if it changes no step")
        if argument in target.switches and values:
            raise stated.error(argument, f"it has no value, and `{values[0][:40]}` follows", "leave that out")


def without_effect(rows: Iterable[Row], stated: Stated, fields: dict[str, Any]) -> Iterator[str]:
    """Arguments whose rows do not apply to the rest, such as those of experts where there are none."""
    for row in rows:
        yield from (each for each in row.arguments if each in stated and not row.when(fields))


def located(target: Target, stated: Stated, error: InputError) -> InputError:
    """An error about fields, at the argument of the file that says the first that its fix names, else its message."""
    rows = sorted(target.rows, key=lambda row: "layout." not in "".join(row.fields))  # the layout's first
    for text in (error.fix.replace("batch_rows", "sequences"), error.message):
        words = {*re.findall(r"\w+", text)}
        for row in rows:
            argument = next((each for each in row.arguments if each in stated), None)
            if argument and {name.rpartition(".")[2] for name in row.fields} & words:
                return stated.error(argument, error.message, error.fix)
    return InputError(error.message, where=stated.file, fix=error.fix)
