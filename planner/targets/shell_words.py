"""The commands of a shell script, with its literal variables and arrays expanded; nothing is run.

What the script computes, reads, or decides by a branch or a loop is unknown: a word that needs it says so, with the
name of the variable, and a caller may give that a value. Functions do what they do where they are called.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import NamedTuple

from planner.errors import InputError
from planner.targets.shell_tokens import Piece, Token, plain, tokens

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
ASSIGNMENT = re.compile(rf"({NAME})(?:(\[)|(\+?)=)")
EXPANSION = re.compile(rf"({NAME}|[0-9@*#?])(\[[@*]\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
CHANGED = re.compile(rf"({NAME})\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)({NAME})")  # by sums
SHELL = re.compile(r"(.*/)?(ba)?sh")
OPENING = {"if", "for", "while", "until", "case", "select", "{"}
CLOSING = {"fi", "done", "esac", "}"}
BETWEEN = {"then", "else", "elif", "do", "!", "time"}  # words that a command may follow
DECLARING = {"export", "declare", "local", "readonly", "typeset"}
LOCAL = {"declare", "local", "typeset"}  # of a function, in one
SETTING = {"read", "mapfile", "readarray", "getopts", "let", "printf", "unset"}  # variables that are named
SOURCING = {"source", ".", "eval"}
MOST_TEXT = 10**6  # characters of a variable
MOST_CALLS = 200  # of functions
HOLE = "\ue000"  # around the number of what is unknown


class Unknown(NamedTuple):
    """What the file does not say: a variable, and why."""

    name: str
    why: str


class Word(NamedTuple):
    """A word of a command, or an element of an array. Within its text, `HOLE` stands for what the file does not say."""

    text: str
    line: int


Value = tuple[Word, ...]  # the elements of an array, or the parts of a text
Stored = tuple[Value, bool]  # of a variable, and whether it is an array


@dataclass(slots=True)
class Shell:
    """Variables and functions of a script as far as it has been read, and what is unknown of its words."""

    name: str
    given: Mapping[str, str]
    values: dict[str, Stored] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)
    depth: int = 0  # of branches and loops: what they do may not happen
    functions: dict[str, tuple[list[Token], bool]] = field(default_factory=dict)  # and whether a branch defines it
    arguments: Value = ()  # of the function that is called; the script itself has none
    local: dict[str, Stored | None] = field(default_factory=dict)  # what the function hides
    calls: int = 0

    def hole(self, name: str, why: str, line: int) -> Value:
        """A value that the file does not say."""
        self.unknown.append(Unknown(name, why))
        return (Word(f"{HOLE}{len(self.unknown) - 1}{HOLE}", line),)

    def holes(self, text: str) -> list[Unknown]:
        """What is unknown of a text."""
        numbers = (int(found) for found in re.findall(f"{HOLE}([0-9]{{1,9}}){HOLE}", text))
        return [self.unknown[number] for number in numbers if number < len(self.unknown)]

    def lose(self, name: str, why: str, line: int) -> None:
        """A variable's value is no longer known."""
        self.values[name] = self.hole(name, f"{why} at line {line}", line), False

    def assign(self, name: str, value: Value, line: int, array: bool = False, appends: bool = False) -> None:
        """Note a variable's value; unknown where a branch decides it."""
        if name in self.given:
            return
        old, was_array = self.values.get(name, ((), array))
        if self.depth or (appends and was_array and not array):
            self.lose(name, "is decided by a branch" if self.depth else "is set in part", line)
            return
        if appends and not array and old and value and not value[0].text[:1].isspace():
            old, value = old[:-1], (Word(old[-1].text + value[0].text, line),)
        value = (*old, *value) if appends else value
        if sum(len(word.text) + 1 for word in value) > MOST_TEXT:
            raise InputError(f"{name} has too much text", where=f"{self.name}:{line}", fix="a launch script")
        self.values[name] = value, array

    def stored(self, name: str, line: int) -> Stored | None:
        """What a name stands for, as far as the file says it."""
        if name in self.given:
            return tuple(Word(text, line) for text in self.given[name].split()), True
        if name in ("@", "*"):
            return self.arguments, True
        if name.isdigit():
            known = 0 < int(name) <= len(self.arguments) and not any(self.holes(word.text) for word in self.arguments)
            return ((self.arguments[int(name) - 1],), False) if known else None
        return self.values.get(name)

    def value(self, piece: Piece, line: int) -> Stored:
        """The value of an expansion, and whether it is several words."""
        if piece.kind == "arithmetic":
            return self.arithmetic(piece.text, line), False
        if piece.kind == "command":
            return self.hole("", f"is what a command prints at line {line}", line), False
        match = EXPANSION.fullmatch(piece.text)
        if not match:
            name = next(iter(re.findall(NAME, piece.text)), "")
            return self.hole(name, f"is computed at line {line}", line), False
        name, elements, operator, other = match.groups()
        value, array = self.stored(name, line) or (None, False)
        several = array and (bool(elements) or name in self.given or name in ("@", "*"))
        if array and not several:
            value = value and value[:1]
        if operator:
            value, several = self.defaulted(name, (value, several), operator, other, line)
        if value is None:
            why = "is an argument of the script" if name.isdigit() else "is set nowhere in the file"
            return self.hole(name, why, line), False
        if piece.quoted and several and "*" in (name, (elements or "")[1:2]):
            return (Word(" ".join(word.text for word in value), line),), False
        return value, several

    def defaulted(
        self, name: str, own: tuple[Value | None, bool], operator: str, other: str, line: int
    ) -> tuple[Value | None, bool]:
        """The value of `${name:-other}` and its kind."""
        text = "".join(word.text for word in own[0] or ())
        if self.holes(text) or (own[0] is None and operator[-1] in "?+"):
            return (own[0], own[1])
        empty = not text if operator[0] == ":" else not own[0]
        if empty == (operator[-1] == "+"):
            return ((), True) if empty else own
        if operator[-1] == "?":
            return None, False
        words = [word.text for token in tokens(other, self.name, line) for word in self.words(token)]
        value = (Word(" ".join(words), line),)
        if operator[-1] == "=":
            self.assign(name, value, line)
        return value, False

    def arithmetic(self, text: str, line: int) -> Value:
        """The number of `$((text))`, of known whole numbers."""

        def number(found: re.Match[str]) -> str:
            value, _ = self.value(Piece("variable", found[1], True), line)
            return value[0].text if len(value) == 1 else "?"

        result = calculated(re.sub(rf"\$?\{{?\b({NAME})\}}?", number, text))
        name = next(iter(re.findall(NAME, text)), "")
        self.change(text, line)
        return self.hole(name, f"is computed at line {line}", line) if result is None else (Word(str(result), line),)

    def change(self, text: str, line: int) -> None:
        """Note what sums assign."""
        for names in CHANGED.findall(text):
            self.lose("".join(names), "is computed", line)

    def words(self, token: Token) -> list[Word]:
        """The words that a token expands to: unquoted values are split at blanks, arrays into their elements."""
        done: list[Word] = []
        text: str | None = None
        nothing = False  # an array without elements: no word, unless there is text beside it
        for piece in token.pieces:
            if piece.kind == "text":
                text = (text or "") + piece.text
                continue
            value, several = self.value(piece, token.line)
            parts = [part for word in value for part in ((word,) if piece.quoted else blanked(word))]
            if piece.quoted and not several:
                text = (text or "") + "".join(part.text for part in parts)
                continue
            nothing = nothing or not parts
            for number, part in enumerate(parts):
                if number and text is not None:
                    done.append(Word(text, parts[number - 1].line))
                    text = None
                text = (text or "") + part.text
            if parts and len(token.pieces) == 1:
                done.append(Word(text or "", parts[-1].line))
                text = None
        return done if text is None or (nothing and not text) else [*done, Word(text, token.line)]

    def set_variables(self, words: list[Word]) -> None:
        """Note what a command of the shell itself does to variables and arguments."""
        (head, line), texts = words[0], [word.text for word in words[1:]]
        if head in SOURCING and not "".join(texts[:1]).endswith("/bin/activate"):
            for name in self.values:
                self.lose(name, f"may be set by `{head}`", line)
        elif head in SETTING and (head != "printf" or texts[:1] == ["-v"]):
            for found in filter(None, (re.match(NAME, text) for text in texts)):
                if head == "unset" and not self.depth and found[0] in texts:
                    self.values[found[0]] = (), True
                else:
                    self.lose(found[0], "is read or computed", line)
        elif head == "set" and "--" in texts:
            behind = tuple(words[texts.index("--") + 2 :])
            self.arguments = self.hole("@", f"is decided by a branch at line {line}", line) if self.depth else behind
        elif head == "shift" and self.arguments:
            known = not (self.depth or texts or any(self.holes(word.text) for word in self.arguments))
            self.arguments = self.arguments[1:] if known else self.hole("@", f"is shifted at line {line}", line)
        elif head == "return":
            self.depth += 1  # what follows in the function may not happen


def blanked(word: Word) -> list[Word]:
    """A word split at its blanks."""
    return [Word(part, word.line) for part in word.text.split()]


def calculated(text: str) -> int | None:
    """The value of sums and products of whole numbers; None of anything else."""
    if not re.fullmatch(r"[0-9\s+*/%()-]{1,200}", text) or "**" in text:
        return None
    try:
        return int(eval(text.replace("/", "//"), {"__builtins__": {}}))
    except (SyntaxError, ZeroDivisionError, TypeError, OverflowError, MemoryError, RecursionError):
        return None


def commands(text: str, shell: Shell) -> Iterator[list[Word]]:
    """The commands of a script, in order, as words. Raises InputError where quotes or parentheses do not end."""
    yield from execute(tokens(text, shell.name, 1), shell)


def execute(read: Iterator[Token], shell: Shell) -> Iterator[list[Word]]:
    """The commands of these tokens; those of a function where it is called."""
    command: list[Token] = []
    before = "\n"
    outer: list[tuple[dict[str, Stored], int]] = []  # of subshells: what they change ends with them
    stream = chain(read, (Token((), "\n", 0),))
    for token in stream:
        operator, words = token.operator, [plain(each) for each in command]
        if operator == "(" and words and ASSIGNMENT.fullmatch(words[-1]):
            elements = takewhile(lambda inner: inner.operator != ")", stream)
            command[-1] = command[-1]._replace(elements=tuple(each for each in elements if not each.operator))
        elif defines(words, token):
            yield from run(shell, [each for each in command[:-1] if plain(each) != "function"])
            define(shell, words[-1], stream, int(not operator))
            command = []
        elif operator and operator != "<<":
            may_not = before in ("&&", "||", "|") or operator in ("|", "&")
            shell.depth += may_not
            yield from run(shell, command)
            shell.depth -= may_not
            before = operator if command or operator != "\n" else before
            command = []
            if operator == "((":
                shell.change(token.pieces[0].text, token.line)
            elif operator == "(":
                outer.append((dict(shell.values), shell.depth))
            elif operator == ")" and outer:
                shell.values, shell.depth = outer.pop()
        else:
            command.append(token)


def defines(words: list[str], token: Token) -> bool:
    """Whether a function begins here: `name (` or `function name {`, perhaps behind what opens a branch."""
    begins = words and (token.operator == "(" or ("function" in words[:-1] and plain(token) == "{"))
    return bool(begins and re.fullmatch(NAME, words[-1]) and {*words[:-1]} <= BETWEEN | OPENING | {"function"})


def define(shell: Shell, name: str, stream: Iterator[Token], opened: int) -> None:
    """Note the body of a function, up to the brace that closes it; of several that branches define, all. Raises
    InputError for a body without braces.
    """
    body: list[Token] = []
    for token in stream:
        inside = opened
        opened += (plain(token) == "{") - (plain(token) == "}")
        if not inside and not opened and token.operator not in (")", "\n"):
            where = f"{shell.name}:{token.line}"
            raise InputError(f"the function {name} has no braces", where=where, fix=f"{name}() {{ … }}")
        if inside and not opened:
            break
        body += [token] if inside else []
    earlier = shell.functions[name][0] if shell.depth and name in shell.functions else []
    shell.functions[name] = [*earlier, Token((), "\n", 0), *body], bool(shell.depth)


def call(shell: Shell, words: list[Word]) -> Iterator[list[Word]]:
    """What a function does with the words behind its name."""
    body, uncertain = shell.functions[words[0].text]
    shell.calls += 1
    if shell.calls > MOST_CALLS:
        where = f"{shell.name}:{words[0].line}"
        raise InputError(f"{words[0].text} calls functions too often", where=where, fix="a launch script")
    outer = shell.arguments, shell.local, shell.depth
    shell.arguments, shell.local, shell.depth = tuple(words[1:]), {}, shell.depth + uncertain
    yield from execute(iter(body), shell)
    restore(shell.values, shell.local)
    shell.arguments, shell.local, shell.depth = outer


def restore(values: dict[str, Stored], old: Mapping[str, Stored | None]) -> None:
    """Give variables the values again that they had."""
    for name, value in old.items():
        values.pop(name, None)
        if value is not None:
            values[name] = value


def run(shell: Shell, command: list[Token]) -> Iterator[list[Word]]:
    """Note what a command changes, and give its words unless it only assigns."""
    command, documents = [each for each in command if not each.operator], [each for each in command if each.operator]
    while command and plain(command[0]) in BETWEEN | OPENING | CLOSING:
        head = plain(command.pop(0))
        shell.depth += (head in OPENING) - (head in CLOSING)
        if head in ("for", "select", "case"):
            if command and head != "case" and re.fullmatch(NAME, plain(command[0])):
                shell.assign(plain(command[0]), (), command[0].line)
            return
    if command and plain(command[0]) in DECLARING:
        declare(shell, plain(command[0]), command[1:])
        return
    assigning = [*takewhile(assigns, command)]
    words = [word for token in command[len(assigning) :] for word in shell.words(token)]
    names = [token.pieces[0].text.partition("=")[0].rstrip("+") for token in assigning if words]
    old = {name: shell.values.get(name) for name in names}
    for token in assigning:
        assign(shell, token)
    if not words:
        return
    if documents and any(SHELL.fullmatch(word.text) for word in words):
        line = documents[-1].line
        words += [Word("bash", line), Word("-c", line), Word(documents[-1].pieces[0].text, line)]
    if words[0].text in shell.functions:
        yield from call(shell, words)
    else:
        shell.set_variables(words)
        yield words
    restore(shell.values, old)  # what stands before a command is of this command alone


def assigns(token: Token) -> bool:
    """Whether a word in front of a command, or alone, gives a variable its value."""
    return bool(token.pieces and not token.pieces[0].quoted and ASSIGNMENT.match(token.pieces[0].text))


def declare(shell: Shell, how: str, rest: list[Token]) -> None:
    """Note what is declared, and what a function's own variables hide."""
    for token in rest:
        token = token._replace(pieces=tuple(piece for piece in token.pieces if piece.text or piece.kind != "text"))
        name = re.match(NAME, token.pieces[0].text if token.pieces else "")
        if name and how in LOCAL:
            shell.local.setdefault(name[0], shell.values.get(name[0]))
        if name and ASSIGNMENT.match(token.pieces[0].text):
            assign(shell, token)


def assign(shell: Shell, token: Token) -> None:
    """Note what `NAME=word`, `NAME+=word` and `NAME=(words)` say."""
    first = token.pieces[0]
    found = ASSIGNMENT.match(first.text)
    assert found
    name, part, appends = found.groups()
    if token.elements is not None:
        words = tuple(word for each in token.elements for word in shell.words(each))
        shell.assign(name, words, token.line, True, bool(appends))
        part = any(re.match(r"\[.*\]=", word.text) for word in words)
    else:
        rest = Token((first._replace(text=first.text[found.end() :]), *token.pieces[1:]), "", token.line)
        text = " ".join(word.text for word in shell.words(as_quoted(rest)))
        shell.assign(name, (Word(text, token.line),), token.line, False, bool(appends))
    if part and name not in shell.given:
        shell.lose(name, "is set in part", token.line)


def as_quoted(token: Token) -> Token:
    """A token whose values are not split: the shell assigns them as they are."""
    return token._replace(pieces=tuple(piece._replace(quoted=True) for piece in token.pieces))
