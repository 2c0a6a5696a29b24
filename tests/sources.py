"""The project's own files, for tests that read them: each is parsed once."""

import ast
import gc
from functools import cache
from pathlib import Path

HOME = Path(__file__).parents[1]
ROOT = HOME / "planner"
SOURCES = sorted(ROOT.rglob("*.py"))
NATIVE = sorted(ROOT.rglob("*.c"))
DOCUMENTS = [HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted((HOME / "docs").glob("*.md"))]


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, which nobody changes. Garbage collections, which look at every tree that there is and take
    longer than parsing, wait meanwhile.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree."""
    return (*ast.walk(parsed(path)),)


def named(path: Path) -> str:
    """A file as messages name it."""
    return str(path.relative_to(HOME))
