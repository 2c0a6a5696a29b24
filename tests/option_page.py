"""The page of options as the verbs declare them: every argument and option with its default and help.

`python -m tests.option_page` writes docs/options.md anew; tests/test_option_page.py holds the page to what this file
writes.
"""

import inspect
import types
import typing
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from planner.cli.app import VERBS

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
HEADER = """# Options

Written from the verbs by `python -m tests.option_page`. [Verbs](cli.md) says what each is for. Every verb has `--help`,
and `planner` itself `--debug`, `--log-level` and `--version`, in front of the verb.
"""
BAR = "\\|"  # a bar within a cell
TAKES = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def page() -> str:
    """The whole page, verbs in the order of `planner --help`."""
    return "\n".join([HEADER, *(section(name, verb) for name, verb in VERBS.items())])


def section(name: str, verb: Callable[..., None]) -> str:
    """One verb: its first sentence, and a table of what it takes."""
    summary = (inspect.getdoc(verb) or "").split("\n\n")[0].replace("\n", " ")
    hints = typing.get_type_hints(verb, include_extras=True)
    lines = [parameter_line(each, hints[key]) for key, each in inspect.signature(verb).parameters.items()]
    table = ["| | default | |", "|---|---|---|", *lines, ""] if lines else []
    return "\n".join([f"## {name}", "", summary, "", *table])


def parameter_line(parameter: inspect.Parameter, hint: Any) -> str:
    """A line of the table: arguments by their names in capitals, options with what they take."""
    kind, info, default = declared(parameter, hint)
    if isinstance(info, ArgumentInfo):
        spelled = f"`{info.metavar or parameter.name.upper()}`".replace("|", " or ")
    else:
        spelled = f"{', '.join(f'`{each}`' for each in spellings(parameter, info))} {value_text(kind)}".strip()
    cells = (spelled, default_text(default), (info.help or "").replace("|", BAR))
    return " ".join(f"| {cell}".rstrip() for cell in cells) + " |"


def declared(parameter: inspect.Parameter, hint: Any) -> tuple[Any, ParameterInfo, Any]:
    """Type, declaration and default of a parameter; `...` where it is required."""
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    if isinstance(default, ParameterInfo):
        return hint, default, default.default
    kind, *metadata = typing.get_args(hint)
    (info,) = (each for each in metadata if isinstance(each, ArgumentInfo | OptionInfo))
    return kind, info, default


def spellings(parameter: inspect.Parameter, info: ParameterInfo) -> tuple[str, ...]:
    """How an option is typed. In an annotation the first spelling stands where a default would."""
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    return (*first, *(info.param_decls or ())) or (f"--{parameter.name.replace('_', '-')}",)


def value_text(kind: Any) -> str:
    """What an option takes: nothing for a switch, the choices of an enumeration, or what kind of thing."""
    if kind is bool:
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{each.value}`" for each in kind)
    if isinstance(kind, types.UnionType):  # | None
        return value_text(typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        return " ".join(TAKES[each] for each in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        return f"{value_text(typing.get_args(kind)[0])}, more than once"
    return TAKES[kind]


def default_text(value: Any) -> str:
    """The default as it is typed; empty where leaving it out means nothing is given."""
    if value is ...:
        return "required"
    if value is None or value is False or value == "":
        return ""
    value = value.value if isinstance(value, Enum) else value
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
