"""Structs and plain data as YAML: atomic, and the same bytes for the same data."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from planner.errors import InputError
from planner.files.text import FLOAT, INTEGER, WORDS
from planner.files.whole import whole

try:  # libyaml when present: about ten times faster
    from yaml import CSafeDumper as Dumper
except ImportError:  # pragma: no cover - depends on how PyYAML was built
    from yaml import SafeDumper as Dumper  # type: ignore[assignment]

WIDTH = 118  # characters: what fits on one line is written on one line
RESOLVE = yaml.resolver.Resolver().resolve


def write(path: str | Path, value: Any, lasting: bool = False) -> None:
    """`value` (a Struct or plain data) as YAML at `path`: whole or not at all; `lasting`: on the disk behind it."""
    write_text(path, dump(value), lasting)


def write_text(path: str | Path, text: str, lasting: bool = False) -> None:
    """`text` at `path`, in UTF-8: whole or not at all; `lasting`: on the disk behind it."""
    write_bytes(path, text.encode("utf-8"), lasting)


def write_bytes(path: str | Path, raw: bytes, lasting: bool = False) -> None:
    """`raw` at `path`: whole or not at all; `lasting`: on the disk behind it."""
    with whole(path, lasting) as out:
        out.write(raw)


def dump(value: Any) -> str:
    """YAML text: what fits on a line stands on one line, the rest is a block. Same data, same bytes."""
    return str(yaml.serialize(represent(plain(value), 0), Dumper=Dumper, width=WIDTH, allow_unicode=True))


def plain(value: Any) -> Any:
    """Mappings, lists and scalars, in the order and under the names of a file; what is as by default is left out.

    Not msgspec's own: it takes `Ranks`, a tuple, for a list and never asks how it stands in a file.
    """
    if hasattr(value, "to_file"):
        return value.to_file()
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        pairs = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        kept = [(field, item) for field, item in pairs if not (config.omit_defaults and is_default(item, field))]
        return tag | {field.encode_name: plain(item) for field, item in kept}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def is_default(item: Any, field: msgspec.structs.FieldInfo) -> bool:
    if field.default is not msgspec.NODEFAULT:
        return bool(item == field.default)
    return field.default_factory is not msgspec.NODEFAULT and item == field.default_factory()


def represent(value: Any, indent: int) -> yaml.Node:
    """A YAML node with the layout chosen: flow style for what is flat or short, block style otherwise."""
    if isinstance(value, dict):
        pairs = [(represent(key, 0), represent(item, indent + 2)) for key, item in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=fits(value, indent))
    if isinstance(value, (list, tuple)):
        children = [represent(item, indent + 2) for item in value]
        return yaml.SequenceNode("tag:yaml.org,2002:seq", children, flow_style=fits(value, indent))
    return represent_scalar(value)


def fits(value: Any, indent: int) -> bool:
    """Whether a collection stands on one line. Lists of numbers are always flow: they wrap, they never stack."""
    children = value.values() if isinstance(value, dict) else value
    if indent and not any(isinstance(child, (dict, list, tuple, str)) for child in children):
        return True
    return indent > 0 and len(str(value)) + indent <= WIDTH


def represent_scalar(value: Any) -> yaml.ScalarNode:
    """A scalar that reads back as the same value: text that looks like a number is quoted."""
    if isinstance(value, str):
        looks_typed = value in WORDS or INTEGER.fullmatch(value) or FLOAT.fullmatch(value)
        return yaml.ScalarNode("tag:yaml.org,2002:str", value, style="'" if looks_typed else None)
    text = json.dumps(value)
    tag = RESOLVE(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return yaml.ScalarNode(tag, text)


def digest(path: str | Path) -> str:
    """The SHA-256 of a file, shortened to 16 hex digits: enough to tell a stale input from a fresh one."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=str(path), fix="check the path") from error


def json_text(value: Any) -> str:
    """One JSON object, keys in their own order."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)
