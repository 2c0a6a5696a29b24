"""Writes structs and plain data as YAML: atomically, and the same bytes for the same data."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from planner.files.atomic_write import atomic_write
from planner.files.bounded_read import read_chunks
from planner.files.yaml_text import FLOAT, INTEGER, WORDS
from planner.printable import UNSAFE, printable, printable_json

try:  # libyaml when present: about ten times faster
    from yaml import CSafeDumper as Dumper
except ImportError:  # pragma: no cover - depends on how PyYAML was built
    from yaml import SafeDumper as Dumper  # type: ignore[assignment]

WIDTH = 118  # characters: what fits on one line is written on one line
PLAIN = (int, str, float, bool, type(None))  # scalars that stand for themselves
RESOLVE = yaml.resolver.Resolver().resolve


def write(path: str | Path, value: Any, durable: bool = False) -> None:
    """Writes `value` (a Struct or plain data) as YAML at `path`, atomically; `durable`: synced to disk. Raises
    InputError.
    """
    write_text(path, dump(value), durable)


def write_text(path: str | Path, text: str, durable: bool = False) -> None:
    """Writes `text` in UTF-8 at `path`, atomically; `durable`: synced to disk. Raises InputError."""
    write_bytes(path, text.encode("utf-8"), durable)


def write_bytes(path: str | Path, raw: bytes, durable: bool = False) -> None:
    """Writes `raw` at `path`, atomically; `durable`: synced to disk. Raises InputError."""
    with atomic_write(path, durable) as out:
        out.write(raw)


def dump(value: Any) -> str:
    """YAML text: a collection that fits on a line is in flow style, others in block style. Same data, same bytes.

    Text that is unsafe to print is in double quotes, within which YAML has the escapes of `printable`.
    """
    nodes = represent(to_plain_data(value), 0)
    return printable(str(yaml.serialize(nodes, Dumper=Dumper, width=WIDTH, allow_unicode=True)))


def to_plain_data(value: Any) -> Any:
    """Mappings, lists and scalars with a file's keys, in its order; fields with their default are left out.

    msgspec's own conversion takes `Ranks`, a tuple, for a list, and never asks for its form in a file.
    """
    if type(value) in PLAIN:  # most of a large plan
        return value
    if hasattr(value, "to_file"):
        return value.to_file()
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        pairs = [(field, getattr(value, field.name)) for field in fields_of(type(value))]
        kept = [(field, item) for field, item in pairs if not (config.omit_defaults and is_default(item, field))]
        return tag | {field.encode_name: to_plain_data(item) for field, item in kept}
    if isinstance(value, dict):
        return {key: to_plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain_data(item) for item in value]
    return value


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a struct, in a file's order."""
    return msgspec.structs.fields(struct)


def is_default(item: Any, field: msgspec.structs.FieldInfo) -> bool:
    """Whether a field has its default."""
    if field.default is not msgspec.NODEFAULT:
        return bool(item == field.default)
    return field.default_factory is not msgspec.NODEFAULT and item == field.default_factory()


def represent(value: Any, indent: int) -> yaml.Node:
    """A YAML node: flow style for what is flat or short, block style otherwise."""
    if isinstance(value, dict):
        pairs = [(represent(key, 0), represent(item, indent + 2)) for key, item in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=fits_on_line(value, indent))
    if isinstance(value, (list, tuple)):
        children = [represent(item, indent + 2) for item in value]
        return yaml.SequenceNode("tag:yaml.org,2002:seq", children, flow_style=fits_on_line(value, indent))
    return represent_scalar(value)


def fits_on_line(value: Any, indent: int) -> bool:
    """Whether a collection is written on one line. Lists of numbers always are in flow style, and wrap."""
    children = value.values() if isinstance(value, dict) else value
    if indent and not any(isinstance(child, (dict, list, tuple, str)) for child in children):
        return True
    if 3 * len(value) + indent > WIDTH:  # each child takes as much at least: the text of a long one is not made
        return False
    return indent > 0 and len(str(value)) + indent <= WIDTH


def represent_scalar(value: Any) -> yaml.ScalarNode:
    """A scalar that reads back as the same value: text that looks like a number is quoted."""
    if isinstance(value, str):
        if UNSAFE.search(value):
            return yaml.ScalarNode("tag:yaml.org,2002:str", value, style='"')
        looks_typed = value in WORDS or INTEGER.fullmatch(value) or FLOAT.fullmatch(value)
        return yaml.ScalarNode("tag:yaml.org,2002:str", value, style="'" if looks_typed else None)
    if type(value) is int:  # most of a large plan is ranks and lengths
        return yaml.ScalarNode("tag:yaml.org,2002:int", str(value))
    text = json.dumps(value)
    tag = RESOLVE(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return yaml.ScalarNode(tag, text)


def digest(path: str | Path) -> str:
    """The SHA-256 of a file, the first 16 hex digits: enough to tell a stale input from a current one. Raises
    InputError.
    """
    found = hashlib.sha256()
    for chunk in read_chunks(path):
        found.update(chunk)
    return found.hexdigest()[:16]


def json_text(value: Any) -> str:
    """One JSON object, keys in their given order."""
    return printable_json(json.dumps(to_plain_data(value), indent=2, ensure_ascii=False))
