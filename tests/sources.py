"""The project's own files, for tests that read them: each is parsed once."""

import ast
from functools import cache
from pathlib import Path

HOME = Path(__file__).parents[1]
ROOT = HOME / "planner"
SOURCES = sorted(ROOT.rglob("*.py"))
NATIVE = sorted(ROOT.rglob("*.c"))
DOCUMENTS = [HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted((HOME / "docs").glob("*.md"))]


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, which nobody changes."""
    return ast.parse(path.read_text())


def named(path: Path) -> str:
    """A file as messages name it."""
    return str(path.relative_to(HOME))
