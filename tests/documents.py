"""The documents that people read, and what stands in them: blocks of code, commands of planner, links, headings."""

import re
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).parents[1]
DOCS = HOME / "docs"
PAGES = (HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LEFT_OUT = "…"  # a line of a shown output that stands for some that are left out


class Block(NamedTuple):
    """A block of code between fences."""

    page: str  # its path below the top
    language: str
    text: str


class Shown(NamedTuple):
    """A command after `$`, and the lines of its output that a page shows."""

    page: str
    command: str
    lines: tuple[str, ...]


def name_of(page: Path) -> str:
    return page.relative_to(HOME).as_posix()


def blocks(page: Path) -> list[Block]:
    """All blocks of code of a page, in its order."""
    return [Block(name_of(page), *found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def shown(page: Path) -> list[Shown]:
    """Commands with the output that the page shows of them, in its order."""
    found: list[Shown] = []
    for block in blocks(page):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            lines = (line.rstrip() for line in output.splitlines())
            found.append(
                Shown(block.page, command, tuple(line for line in lines if line.strip() not in ("", LEFT_OUT)))
            )
    return found


def commands(page: Path) -> list[str]:
    """Lines of planner in the blocks of a page, as they are typed; one that goes on in the next is one."""
    texts = (block.text.replace("\\\n", " ") for block in blocks(page) if not block.language)
    lines = (line.removeprefix("$ ") for text in texts for line in text.splitlines())
    return [line.partition(" #")[0].strip() for line in lines if line.startswith("planner ")]


def spans(page: Path) -> list[str]:
    """What stands in backquotes in the running text and begins with planner; bars in tables are escaped."""
    text = re.sub(r"\s+", " ", prose(page))
    return [span.replace("\\|", "|") for span in re.findall(r"`(planner [^`]*)`", text)]


def links(page: Path) -> list[str]:
    """Targets of links and pictures within the project."""
    found = re.findall(r"\]\(([^()\s]+)\)", prose(page))
    return [target for target in found if not target.startswith(("http:", "https:"))]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site's `slugify` make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
