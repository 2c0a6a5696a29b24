"""The commands of a shell script, with its literal variables and arrays expanded; nothing is run.

What the script computes (`$(…)`, a branch, its own arguments) is unknown: a word that needs it says so, with the name
of the variable, and a caller may give that a value.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.errors import InputError

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
ASSIGNMENT = re.compile(rf"({NAME})(\+?)=")
EXPANSION = re.compile(rf"({NAME}|[0-9@*#?])(\[[@*]\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
OPENING = {"if", "for", "while", "until", "case", "select", "{"}
CLOSING = {"fi", "done", "esac", "}"}
BETWEEN = {"then", "else", "elif", "do", "!", "time"}  # words that a command may follow
DECLARING = {"export", "declare", "local", "readonly", "typeset"}
MOST_TEXT = 10**6  # characters of a variable
HOLE = "\ue000"  # around the number of what is unknown


class Unknown(NamedTuple):
    """What the file does not say: a variable, and why."""

    name: str
    why: str


class Word(NamedTuple):
    """A word of a command, or an element of an array. Within its text, `HOLE` stands for what the file does not say."""

    text: str
    line: int


class Piece(NamedTuple):
    """A part of a word: its text, or the inside of an expansion."""

    kind: str  # text, variable, arithmetic, command
    text: str
    quoted: bool


class Token(NamedTuple):
    """The pieces of a word, or an operator."""

    pieces: tuple[Piece, ...]
    operator: str
    line: int


Value = tuple[Word, ...]  # of a variable: one word, or those of an array


@dataclass(slots=True)
class Shell:
    """Variables of a script as far as it has been read, and what is unknown of its words."""

    name: str
    given: Mapping[str, str]
    values: dict[str, Value] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)
    depth: int = 0  # of branches, loops and functions: what they do may not happen

    def hole(self, name: str, why: str, line: int) -> Value:
        """A value that the file does not say."""
        self.unknown.append(Unknown(name, why))
        return (Word(f"{HOLE}{len(self.unknown) - 1}{HOLE}", line),)

    def holes(self, text: str) -> list[Unknown]:
        """What is unknown of a text."""
        numbers = (int(found) for found in re.findall(f"{HOLE}([0-9]{{1,9}}){HOLE}", text))
        return [self.unknown[number] for number in numbers if number < len(self.unknown)]

    def assign(self, name: str, value: Value, line: int, appends: bool) -> None:
        """Note a variable's value; unknown where a branch decides it."""
        if name in self.given:
            return
        if self.depth:
            value, appends = self.hole(name, f"is decided by a branch at line {line}", line), False
        value = (*self.values.get(name, ()), *value) if appends else value
        if sum(len(word.text) + 1 for word in value) > MOST_TEXT:
            raise InputError(f"{name} has too much text", where=f"{self.name}:{line}", fix="a launch script")
        self.values[name] = value

    def value(self, piece: Piece, line: int) -> tuple[Value, bool]:
        """The value of an expansion, and whether it is an array's."""
        if piece.kind == "arithmetic":
            return self.arithmetic(piece.text, line), False
        if piece.kind == "command":
            return self.hole("", f"is what a command prints at line {line}", line), False
        match = EXPANSION.fullmatch(piece.text)
        if not match:
            name = next(iter(re.findall(NAME, piece.text)), "")
            return self.hole(name, f"is computed at line {line}", line), False
        name, array, operator, other = match.groups()
        if name in "@*":
            return (), True
        if name in self.given:
            return tuple(Word(text, line) for text in self.given[name].split()), True
        if name in self.values:
            return self.values[name], bool(array)
        if operator and operator[-1] in "-=":
            return tuple(word for token in tokens(other or "", self.name, line) for word in self.words(token)), False
        why = "is an argument of the script" if name.isdigit() else "is set nowhere in the file"
        return self.hole(name, why, line), False

    def arithmetic(self, text: str, line: int) -> Value:
        """The number of `$((text))`, of known whole numbers."""

        def number(found: re.Match[str]) -> str:
            value, _ = self.value(Piece("variable", found[1], True), line)
            return value[0].text if len(value) == 1 else "?"

        result = calculated(re.sub(rf"\$?\{{?\b({NAME})\}}?", number, text))
        name = next(iter(re.findall(NAME, text)), "")
        return self.hole(name, f"is computed at line {line}", line) if result is None else (Word(str(result), line),)

    def words(self, token: Token) -> list[Word]:
        """The words that a token expands to: unquoted values are split at blanks, arrays into their elements."""
        done: list[Word] = []
        text: str | None = None
        for piece in token.pieces:
            if piece.kind == "text":
                text = (text or "") + piece.text
                continue
            value, array = self.value(piece, token.line)
            parts = [part for word in value for part in ((word,) if piece.quoted else blanked(word))]
            if piece.quoted and not array:
                text = (text or "") + " ".join(part.text for part in parts)
                continue
            for number, part in enumerate(parts):
                if number and text is not None:
                    done.append(Word(text, parts[number - 1].line))
                    text = None
                text = (text or "") + part.text
            if parts and len(token.pieces) == 1:
                done.append(Word(text or "", parts[-1].line))
                text = None
        return done if text is None else [*done, Word(text, token.line)]


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
    command: list[Token] = []
    stream = iter([*tokens(text, shell.name, 1), Token((), "\n", 0)])
    for token in stream:
        if token.operator == "(" and command and ASSIGNMENT.fullmatch(plain(command[-1])):
            found = ASSIGNMENT.fullmatch(plain(command.pop()))
            assert found
            words: list[Word] = []
            for inner in stream:
                if inner.operator == ")":
                    break
                words += shell.words(inner)
            shell.assign(found[1], tuple(words), token.line, bool(found[2]))
        elif token.operator:
            yield from run(shell, command)
            command = []
        else:
            command.append(token)


def run(shell: Shell, command: list[Token]) -> Iterator[list[Word]]:
    """Note what a command changes, and give its words unless it only assigns."""
    while command and plain(command[0]) in BETWEEN | OPENING | CLOSING:
        head = plain(command.pop(0))
        shell.depth += (head in OPENING) - (head in CLOSING)
        if head in ("for", "select", "case"):
            return
    rest = command[1:] if command and plain(command[0]) in DECLARING else command
    while rest and (found := ASSIGNMENT.match(rest[0].pieces[0].text if rest[0].pieces else "")):
        token = rest.pop(0)
        first = token.pieces[0]._replace(text=token.pieces[0].text[found.end() :])
        text = "".join(word.text for word in shell.words(as_quoted(Token((first, *token.pieces[1:]), "", token.line))))
        shell.assign(found[1], (Word(text, token.line),), token.line, bool(found[2]))
    words = [word for token in rest for word in shell.words(token)]
    if words and not (command and plain(command[0]) in DECLARING):
        yield words


def as_quoted(token: Token) -> Token:
    """A token whose values are not split: the shell assigns them as they are."""
    return token._replace(pieces=tuple(piece._replace(quoted=True) for piece in token.pieces))


def plain(token: Token) -> str:
    """The text of a word without quotes and expansions; empty of any other."""
    return "".join(p.text for p in token.pieces) if all(p.kind == "text" and not p.quoted for p in token.pieces) else ""


LEXEME = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\r?\n)|(?P<comment>(?<![^\s;&|()])\#[^\n]*)|(?P<operator>\n|;;|&&|\|\||[;&|()])
    |(?P<redirect>\d*(?:>>?|<)&?-?\d*)|'(?P<single>[^']*)'|(?P<double>")|\\(?P<escaped>.)
    |(?P<arithmetic>\$\(\()|(?P<command>\$\(|`)|\$\{(?P<braced>)|\$(?P<variable>[A-Za-z_][A-Za-z0-9_]*|[0-9@*\#?$!-])
    |(?P<text>[^\s'"\\$`;&|()<>]+|\$|[<>])""",
    re.VERBOSE | re.DOTALL,
)
QUOTED = re.compile(
    r"""(?P<end>")|\\(?P<escaped>["\\$`])|(?P<blank>\\\r?\n)|(?P<arithmetic>\$\(\()|(?P<command>\$\(|`)|\$\{(?P<braced>)
    |\$(?P<variable>[A-Za-z_][A-Za-z0-9_]*|[0-9@*\#?])|(?P<text>[^"\\$`]+|[\\$])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Lexer:
    """A place in a script, and the word that is being read there."""

    text: str
    name: str
    line: int
    place: int = 0
    start: int = 0  # the line where the word began
    quoted: bool = False
    redirects: bool = False  # the word is the file of a redirection, and none of the command
    pieces: list[Piece] = field(default_factory=list)

    def step(self) -> tuple[str, str]:
        """Read one lexeme: its kind and its text, or what brackets enclose. Raises InputError."""
        match = (QUOTED if self.quoted else LEXEME).match(self.text, self.place)
        if not match:
            raise self.error("the text is no shell script", "a script of words and variables")
        kind = match.lastgroup or ""
        found, end = match[kind] or "", match.end()
        if kind in BRACKETS:
            found, end = enclosed(self.text, end, "`" if found == "`" else BRACKETS[kind], f"{self.name}:{self.line}")
        if not self.pieces:
            self.start = self.line
        self.line += self.text.count("\n", self.place, end)
        self.place = end
        return kind, found

    def word(self) -> Iterator[Token]:
        """The word that ends here, if there is one that belongs to a command."""
        if self.pieces and not self.redirects:
            yield Token(tuple(self.pieces), "", self.start)
        self.redirects = self.redirects and not self.pieces
        self.pieces = []

    def error(self, message: str, fix: str) -> InputError:
        return InputError(message, where=f"{self.name}:{self.start or self.line}", fix=fix)


BRACKETS = {"arithmetic": "))", "command": ")", "braced": "}"}


def tokens(text: str, name: str, line: int) -> Iterator[Token]:
    """The words and operators of a script. Raises InputError where something does not end."""
    at = Lexer(text, name, line)
    while at.place < len(text):
        kind, found = at.step()
        if kind in (*BRACKETS, "variable"):
            at.pieces.append(Piece("variable" if kind == "braced" else kind, found, at.quoted))
        elif kind in ("text", "single", "escaped"):
            at.pieces.append(Piece("text", found, at.quoted or kind != "text"))
        elif kind in ("double", "end"):
            at.quoted = not at.quoted
            at.pieces.append(Piece("text", "", True))
        elif not at.quoted:
            yield from at.word()
            at.redirects = at.redirects or (kind == "redirect" and "&" not in found)
            if kind == "operator":
                at.redirects = False
                yield Token((), found, at.line)
    if at.quoted:
        raise at.error("a quote does not end", 'close it with "')
    yield from at.word()


def enclosed(text: str, place: int, closer: str, where: str) -> tuple[str, int]:
    """What stands before the bracket that closes the one before `place`, and the place behind it. Raises InputError."""
    opener = {"}": "{", ")": "(", "))": "(", "`": ""}[closer]
    depth, at = len(closer), place
    while at < len(text):
        if opener and text[at] == opener:
            depth += 1
        elif text[at] == closer[0]:
            depth -= 1
            if depth == 0 or not opener:
                return text[place : at + 1 - len(closer)], at + 1
        at += 1
    raise InputError(f"`{closer}` is missing", where=where, fix=f"close it with {closer}")
