"""What each key of a file is, as the comment beside its field says: the text of schemas and of the pages of formats."""

import ast
import inspect
import io
import textwrap
import tokenize
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec


@lru_cache(maxsize=256)
def field_comments(struct: type) -> dict[str, str]:
    """Comments by key in a file: those beside a field, and whole lines above it; of inherited fields too."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            found |= own_comments(each)
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return {names[field]: text for field, text in found.items() if field in names}


def own_comments(struct: type) -> dict[str, str]:
    """Comments of the fields that a class defines itself; none where its source is not there."""
    try:
        source = textwrap.dedent(inspect.getsource(struct))
    except (OSError, TypeError):
        return {}
    at_line = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:")
    }
    (tree,) = ast.parse(source).body
    found = {}
    for node in tree.body if isinstance(tree, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = node.lineno - 1
            while above in at_line and at_line[above][1]:
                above -= 1
            lines = chain(range(above + 1, node.lineno), range(node.lineno, (node.end_lineno or node.lineno) + 1))
            text = " ".join(at_line[line][0].partition("  # ")[0] for line in lines if line in at_line)
            if text:
                found[node.target.id] = text
    return found


def structs_of(kinds: tuple[type, ...]) -> list[type]:
    """The structs of which files of these kinds are made, in the order in which their keys lead there."""
    found: list[type] = []
    waiting: list[Any] = [msgspec.inspect.type_info(kind) for kind in kinds]
    while waiting:
        here = waiting.pop(0)
        if isinstance(here, msgspec.inspect.StructType):
            if here.cls in found:
                continue
            found.append(here.cls)
            waiting += [field.type for field in here.fields]
        else:
            inner = (getattr(here, name, None) for name in ("type", "item_type", "key_type", "value_type"))
            waiting += [each for each in inner if isinstance(each, msgspec.inspect.Type)]
            waiting += getattr(here, "types", ())
    return found
