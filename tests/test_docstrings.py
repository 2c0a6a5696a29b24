"""Docstrings name what is there: parameters and fields that they explain exist, and so do the files they refer to."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
ROOT = HOME / "planner"
SOURCES = sorted(ROOT.rglob("*.py"))
FILES = {path.relative_to(ROOT).as_posix() for path in [*SOURCES, *ROOT.rglob("*.c"), *ROOT.rglob("*.js")]}

EXPLAINED = re.compile(r"`(\w+)`: ")  # `name`: what it is
MENTIONED = re.compile(r"(?<![\w/.*-])((?:planner/)?(?:\w+/)*\w+\.(?:py|c|js))\b(?!`? of )")
ELSEWHERE = {"megatron/training/arguments.py"}  # of other programs


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node, text


def names_below(node: ast.AST) -> set[str]:
    """Parameters, fields, and every other name that a definition uses."""
    names = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    names |= {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return names | {each.arg for each in ast.walk(node) if isinstance(each, ast.keyword) and each.arg}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_docstring_explains_is_there(path):
    for node, text in documented(ast.parse(path.read_text())):
        if not isinstance(node, ast.Module):
            unknown = set(EXPLAINED.findall(text)) - names_below(node)
            assert not unknown, f"{path}:{node.lineno}: explains {unknown}"


@pytest.mark.parametrize("path", [*SOURCES, *ROOT.rglob("*.c")], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_referred_to_are_there(path):
    for mentioned in MENTIONED.findall(path.read_text()):
        name = mentioned.removeprefix("planner/")
        there = any(file == name or file.endswith(f"/{name}") for file in FILES) or (HOME / mentioned).exists()
        assert there or name in ELSEWHERE, f"{path.relative_to(HOME)} refers to {mentioned}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_docstring_stands_once(path):
    """No second text behind it, which a careless edit leaves."""
    for node, _ in documented(ast.parse(path.read_text())):
        if len(node.body) > 1 and not isinstance(node, ast.Module):
            second = node.body[1]
            assert not (isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant)), (
                f"{path}:{second.lineno}"
            )
