"""Text of files and people as it may be printed: what commands a terminal, reorders a line or hides in it is shown."""

import re

HIDDEN = (  # controls but tab and newline; soft hyphen; bidirectional marks; spaces without width; separators; tags
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
# Between such letters and signs joiners belong: in Persian and Hindi, and in emoji.
JOINED = rf"[^\x00-\x7f{HIDDEN}\u200c\u200d]"
UNSAFE = re.compile(rf"[{HIDDEN}]|(?<!{JOINED})[\u200c\u200d]|[\u200c\u200d](?!{JOINED})")
UNSAFE_IN_LINE = re.compile(rf"[\t\n]|{UNSAFE.pattern}")
LONGEST = 2000  # characters of a line: no name and no fix has more


def printable(text: str) -> str:
    """A text of several lines with what is unsafe to print as `\\x1b` or `\\u202e`: the same again for the result."""
    return UNSAFE.sub(escaped, text)


def one_line(text: str) -> str:
    """Text as it may be printed on one line, cut where it is very long."""
    line = UNSAFE_IN_LINE.sub(escaped, text[:LONGEST])
    return line if len(text) <= LONGEST else f"{line}…"


def escaped(found: re.Match[str]) -> str:
    """A character as Python and YAML write it in quotes."""
    return found.group().encode("unicode_escape").decode()


def printable_json(text: str) -> str:
    """JSON of the same data, with what is unsafe to print as `\\u001b`, by which JSON escapes it."""
    return UNSAFE.sub(json_escaped, text)


def json_escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
