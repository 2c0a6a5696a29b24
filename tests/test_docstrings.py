"""Docstrings name what is there: parameters and fields that they explain exist, and so do the files they refer to."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.sources import HOME, NATIVE, ROOT, SOURCES, named, nodes

FILES = {path.relative_to(ROOT).as_posix() for path in [*SOURCES, *NATIVE, *ROOT.rglob("*.js")]}

EXPLAINED = re.compile(r"`(\w+)`: ")  # `name`: what it is
MENTIONED = re.compile(r"(?<![\w/.*-])((?:planner/)?(?:\w+/)*\w+\.(?:py|c|js))\b(?!`? of )")
ELSEWHERE = {
    "examples/disaggregated/disaggregated_encoder/disagg_epd_proxy.py",
    "vllm/engine/arg_utils.py",
    "megatron/training/arguments.py",
    "pretrain_gpt.py",
    "examples/mimo/train.py",
    "tools/preprocess_data.py",
    "train.py",
    "core/transformer/transformer_config.py",
}  # of other programs


def documented(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node, text


def names_below(node: ast.AST) -> set[str]:
    """Parameters, fields, and every other name that a definition uses."""
    names = set()
    for each in ast.walk(node):
        match each:
            case ast.arg(arg=name) | ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                names.add(name)
            case ast.keyword(arg=str(name)):
                names.add(name)
    return names


def test_what_a_docstring_explains_is_there():
    for path in SOURCES:
        for node, text in documented(path):
            explained = {*EXPLAINED.findall(text)}
            if explained and not isinstance(node, ast.Module):
                unknown = explained - names_below(node)
                assert not unknown, f"{path}:{node.lineno}: explains {unknown}"


def test_files_that_are_referred_to_are_there():
    for path in [*SOURCES, *NATIVE]:
        for mentioned in MENTIONED.findall(path.read_text()):
            name = mentioned.removeprefix("planner/")
            there = any(file == name or file.endswith(f"/{name}") for file in FILES) or (HOME / mentioned).exists()
            assert there or name in ELSEWHERE, f"{named(path)} refers to {mentioned}"


def test_a_docstring_stands_once():
    """No second text behind it, which a careless edit leaves."""
    for path in SOURCES:
        for node, _ in documented(path):
            if len(node.body) > 1 and not isinstance(node, ast.Module):
                second = node.body[1]
                assert not (isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant)), (
                    f"{path}:{second.lineno}"
                )
