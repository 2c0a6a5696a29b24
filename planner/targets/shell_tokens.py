"""The words and operators of a shell script, as pieces of text and of what is to be expanded."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.errors import InputError


class Piece(NamedTuple):
    """A part of a word: its text, or the inside of an expansion."""

    kind: str  # text, variable, arithmetic, command
    text: str
    quoted: bool


class Token(NamedTuple):
    """The pieces of a word, or an operator: `<<` with the text of a here-document, `((` with sums."""

    pieces: tuple[Piece, ...]
    operator: str
    line: int
    elements: "tuple[Token, ...] | None" = None  # of an array that is assigned


def plain(token: Token) -> str:
    """The text of a word without quotes and expansions; empty of any other."""
    return "".join(p.text for p in token.pieces) if all(p.kind == "text" and not p.quoted for p in token.pieces) else ""


LEXEME = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\r?\n)|(?P<comment>(?<![^\s;&|()])\#[^\n]*)|(?P<sum>\(\()
    |(?P<operator>\n|;;|&&|\|\||[;&|()])|(?P<heredoc><<-?[ \t]*(?:'[^'\n]*'|"[^"\n]*"|\\?[\w.+-]+))
    |(?P<redirect>\d*(?:>>?|<<<|<)&?-?\d*)|'(?P<single>[^']*)'|(?P<double>")|\\(?P<escaped>.)
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
    after: int = 0  # where the here-documents of this line end

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

    def operator(self, kind: str, found: str) -> Iterator[Token]:
        """What stands between words and is no blank."""
        if kind == "heredoc":
            yield self.document(found)
        elif kind in ("operator", "sum"):
            self.redirects = False
            pieces = (Piece("text", found, True),) if kind == "sum" else ()
            yield Token(pieces, "((" if kind == "sum" else found, self.line)
            if found == "\n":
                self.skip()

    def document(self, opener: str) -> Token:
        """The here-document that `opener` announces: it stands behind this line, and is no part of the script."""
        begin = self.after if self.after > self.place else self.text.find("\n", self.place) + 1 or len(self.text)
        mark = opener.lstrip("<- \t").strip("'\"\\")
        ends = re.compile(rf"^{chr(9)}*{re.escape(mark)}$", re.MULTILINE).search(self.text, begin)
        end, self.after = ends.span() if ends else (len(self.text),) * 2
        return Token((Piece("text", self.text[begin:end], True),), "<<", self.line)

    def skip(self) -> None:
        """Go behind the here-documents of the line that ends here."""
        if self.after > self.place:
            self.line += self.text.count("\n", self.place, self.after)
            self.place = self.after

    def error(self, message: str, fix: str) -> InputError:
        return InputError(message, where=f"{self.name}:{self.start or self.line}", fix=fix)


BRACKETS = {"arithmetic": "))", "command": ")", "braced": "}", "sum": "))"}


def tokens(text: str, name: str, line: int) -> Iterator[Token]:
    """The words and operators of a script. Raises InputError where something does not end."""
    at = Lexer(text, name, line)
    while at.place < len(text):
        kind, found = at.step()
        if kind in ("arithmetic", "command", "braced", "variable"):
            at.pieces.append(Piece("variable" if kind == "braced" else kind, found, at.quoted))
        elif kind in ("text", "single", "escaped"):
            at.pieces.append(Piece("text", found, at.quoted or kind != "text"))
        elif kind in ("double", "end"):
            at.quoted = not at.quoted
            at.pieces.append(Piece("text", "", True))
        elif not at.quoted:
            yield from at.word()
            at.redirects = at.redirects or (kind == "redirect" and "&" not in found)
            yield from at.operator(kind, found)
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
