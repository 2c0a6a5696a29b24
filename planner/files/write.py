"""Writes structs and plain data as YAML: atomically, and the same bytes for the same data.

A file appears complete or not at all. Until then it has a name of its own beside it, `.NAME.XXXXXXXX.unfinished`, and
whoever writes holds its lock. A process that is killed leaves it, without the lock: the next write into the folder
removes it.
"""

import errno
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import yaml

from planner.errors import InputError
from planner.files.bounded_read import read_chunks
from planner.files.file_lock import try_lock
from planner.files.yaml_text import FLOAT, INTEGER, WORDS
from planner.printable import UNSAFE, printable, printable_json
from planner.units import PERCENTAGE

NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # raised by file systems that cannot sync a folder

UNFINISHED = ".unfinished"


@contextmanager
def atomic_write(path: str | Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Opens `path` for writing through a temporary file beside it, which replaces it at the end of the block. Raises
    InputError.

    A link is followed; a device or a pipe is written to, never replaced. `durable`: after the block the file and its
    name are synced to disk, and survive a crash.
    """
    target = Path(os.path.realpath(path))
    temporary = ""
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            with target.open("wb", buffering=0) as out:
                yield out
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        handle, temporary = locked_temporary(target)
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)  # while it is locked
            temporary = ""
        if durable:
            sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path), fix="choose another path") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def locked_temporary(target: Path) -> tuple[int, str]:
    """Descriptor and path of a new file beside `target`, with its lock. Raises OSError."""
    while True:
        handle, path = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=UNFINISHED)
        with suppress(OSError):  # a file system without locks, where nobody gets one
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, path
        os.close(handle)  # another process removed it before it was locked


def remove_leftovers(folder: Path) -> None:
    """Removes what writes of killed processes left in a folder."""
    names: list[str] = []
    with suppress(OSError):  # a folder that may be written, not read
        names = [name for name in os.listdir(folder) if name[:1] == "." and name.endswith(UNFINISHED)]
    for name in names:
        with suppress(OSError):  # removed by another, or no file of ours
            handle = os.open(folder / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if try_lock(handle, fcntl.LOCK_EX):
                    os.unlink(folder / name)
            finally:
                os.close(handle)


def sync_folder(folder: Path) -> None:
    """Syncs the names of a folder's files to disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(handle)


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
        looks_typed = value in WORDS or any(each.fullmatch(value) for each in (INTEGER, FLOAT, PERCENTAGE))
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
    return printable_json(json.dumps(to_plain_data(value), indent=2, ensure_ascii=False, default=asdict))
