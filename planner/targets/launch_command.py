"""The command of a script, or a YAML file, that launches training: its program, arguments and ranks, each located."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.targets.rows import Stated
from planner.targets.shell_words import HOLE, Shell, Word, commands

LAUNCHERS = re.compile(r"(.*/)?(torchrun|torch\.distributed\.(run|launch))")
RANKS = {"--nproc-per-node": 1, "--nproc_per_node": 1, "--nnodes": 0}
WHOLLY = re.compile(f"({HOLE}[0-9]+{HOLE})+")  # unknown: behind a switch or a value, it may be any arguments
YAML_KEY = "MODEL_ARGS"


class LaunchCommand(NamedTuple):
    """What is started, the arguments that it is given, and the ranks that its launcher starts, if it says so: in all
    and on each node.
    """

    program: str
    stated: Stated
    ranks: int | None
    per_node: int | None = None


def read_launch(text: str, name: str, given: Mapping[str, str], switches: Collection[str]) -> LaunchCommand:
    """The launch of a file. `given`: values for what a script computes; `switches`: arguments without a value.

    Raises InputError where there is none, or several that differ.
    """
    if name.endswith((".yaml", ".yml")):
        return read_yaml(text, name)
    shell = Shell(name, given)
    try:
        launches = [launch for words in commands(text, shell) for launch in launches_of(words, shell)]
    except RecursionError as error:
        raise InputError("its expansions are nested too deeply", where=name, fix="a launch script") from error
    if not launches:
        fix = "the script with the line that starts training, such as `torchrun … pretrain_gpt.py --num-layers 32 …`"
        raise InputError("it launches nothing: no torchrun, and no program in Python", where=name, fix=fix)
    ranked = [words for words in launches if any(LAUNCHERS.fullmatch(word.text) for word in words)]
    launches = ranked or launches  # what prepares data is started alone
    texts = {tuple(word.text for word in words) for words in launches}
    if len(texts) > 1:
        where = f"{name}:{launches[1][0].line}"
        raise InputError(f"it has {len(texts)} commands that launch", where=where, fix="a file with one of them")
    return launch_of(launches[0], shell, switches)


def launches_of(words: list[Word], shell: Shell) -> Iterator[list[Word]]:
    """The launch that a command is, or that it hands to another shell."""
    texts = [word.text for word in words]
    if texts[0] in ("echo", "printf"):
        return
    if any(LAUNCHERS.fullmatch(text) for text in texts) or (re.search("python", texts[0]) and program_at(texts) >= 0):
        yield words
        return
    for at, text in enumerate(texts[:-1]):
        if text in ("-c", "-lc") and re.search(r"(^|/)(ba)?sh$", texts[at - 1]):
            own = replace(shell, values=dict(shell.values), functions={}, arguments=())
            for inner in commands(texts[at + 1], own):
                yield from launches_of([Word(word.text, words[at + 1].line) for word in inner], shell)


def program_at(texts: list[str]) -> int:
    """Where the program in Python stands among these words: a file, or a module behind `-m`; -1: nowhere."""
    for at, text in enumerate(texts):
        if text.endswith(".py") or (at and texts[at - 1] == "-m" and not LAUNCHERS.fullmatch(text)):
            return at
    return -1


def launch_of(words: list[Word], shell: Shell, switches: Collection[str]) -> LaunchCommand:
    """A command as what it launches. Raises InputError, also where what it needs is computed."""
    at = program_at([word.text for word in words])
    if at < 0:
        hidden = next((word for word in words if shell.holes(word.text)), words[0])
        raise missing(hidden, shell, "which program it starts")
    values, places = arguments_of(words[at + 1 :], shell, switches)
    unknown = {name: shell.holes(" ".join(texts))[:1] for name, texts in values.items()}
    stated = Stated(values, places, shell.name, {name: holes[0] for name, holes in unknown.items() if holes})
    return LaunchCommand(re.sub(f"{HOLE}[0-9]*{HOLE}", "…", words[at].text), stated, *launched_ranks(words[:at]))


def launched_ranks(words: list[Word]) -> tuple[int | None, int | None]:
    """Nodes times processes of each, and these, where both are said as numbers."""
    found: dict[str, str] = {}
    for name, value in pairwise(part for word in words for part in word.text.split("=", 1)):
        if name in RANKS:
            found[name.replace("_", "-")] = value
    counts = [found.get("--nproc-per-node", ""), found.get("--nnodes", "1")]
    if not all(re.fullmatch("[1-9][0-9]{0,5}", each) for each in counts):
        return None, None
    return int(counts[0]) * int(counts[1]), int(counts[0])


def arguments_of(
    words: list[Word], shell: Shell, switches: Collection[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Arguments by name with their values, and their places. Raises InputError for a word that belongs to none, and for
    one that may be more arguments.
    """
    values: dict[str, tuple[str, ...]] = {}
    places: dict[str, str] = {}
    last = ""
    for word in words:
        name, equals, value = word.text.partition("=")
        several = WHOLLY.fullmatch(word.text) and (last in switches or values.get(last))
        if name.startswith("--") and not shell.holes(name):
            last = name
            values[last], places[last] = ((value,) if equals else ()), f"{shell.name}:{word.line}"
        elif not last or several or name.startswith("--"):
            raise missing(word, shell, "which arguments are given")
        else:
            values[last] += (word.text,)
    return values, places


def missing(word: Word, shell: Shell, what: str) -> InputError:
    """The error for what the file does not say."""
    holes = shell.holes(word.text)
    where = f"{shell.name}:{word.line}"
    if not holes:
        return InputError(f"`{word.text[:40]}` does not say {what}", where=where, fix="`--name value`, or leave it out")
    name, why = holes[0]
    fix = f"--set {name}=VALUE" if name else "write it out in the file"
    return InputError(f"{name or 'a word'} {why}, and says {what}", where=where, fix=fix)


def read_yaml(text: str, name: str) -> LaunchCommand:
    """Arguments as a mapping, `--num-layers: 12`, perhaps under MODEL_ARGS; true is a switch. Raises InputError."""
    content, positions = files.load_yaml(text, name)
    under = (YAML_KEY,) if isinstance(content, dict) and YAML_KEY in content else ()
    found = content[YAML_KEY] if under else content
    values: dict[str, tuple[str, ...]] = {}
    for key, value in (found if isinstance(found, dict) else {}).items():
        if str(key).startswith("--") and value is not False:
            parts = value if isinstance(value, list) else str(value).split()
            values[str(key)] = () if value is True else tuple(str(part) for part in parts)
    if not values:
        raise InputError("no arguments: `--num-layers: 12`, and so on", where=name, fix=f"a mapping, under {YAML_KEY}")
    places = {key: f"{name}:{positions.get((*under, key), (1, 1))[0]}" for key in values}
    return LaunchCommand("pretrain_gpt.py", Stated(values, places, name), None)
