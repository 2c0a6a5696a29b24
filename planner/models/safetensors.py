"""Tensors in safetensors files: the length of a header, a header in JSON, and the bytes of all tensors.

Written after the format's description (github.com/huggingface/safetensors); its own library is not needed.
"""

import json
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from planner.errors import InputError
from planner.files.whole import whole

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
SUFFIX = ".safetensors"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LONGEST_HEADER = 100_000_000  # bytes, as the format says
ALIGNED = 8  # bytes at which the tensors begin


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int  # from the begin of the file
    end: int


class Described(NamedTuple):
    """A tensor without its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class Checkpoint:
    """All tensors of a file; or of a folder, in one file or in those that an index names. Read one at a time."""

    def __init__(self, path: Path) -> None:
        """Raises InputError."""
        self.path = path
        self.entries: dict[str, Entry] = {}
        alone = path.suffix == SUFFIX and not os.path.isdir(path)
        for file in [path] if alone else files_of(path):
            self.entries |= header(file)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.entry(name).shape

    def read(self, name: str) -> Tensor:
        """A copy in host memory, in the file's own dtype. Raises InputError."""
        entry = self.entry(name)
        held = bytearray(entry.end - entry.begin)
        if not held:
            return torch.empty(entry.shape, dtype=entry.dtype)
        with readable(entry.file), entry.file.open("rb") as raw:
            raw.seek(entry.begin)
            if raw.readinto(held) < len(held):
                raise InputError("the file is cut off", where=str(entry.file), fix="fetch it again")
        return torch.frombuffer(held, dtype=entry.dtype).reshape(entry.shape)

    def mapped(self, name: str) -> Tensor:
        """The same, of which only what is looked at is read: for those who want a part. Raises InputError."""
        entry = self.entry(name)
        if entry.begin == entry.end or entry.begin % entry.dtype.itemsize:  # nothing, or where no number may begin
            return self.read(name)
        page = entry.begin - entry.begin % mmap.ALLOCATIONGRANULARITY  # a map of all would want memory for all
        with readable(entry.file), entry.file.open("rb") as raw:
            private = mmap.mmap(raw.fileno(), entry.end - page, access=mmap.ACCESS_COPY, offset=page)
        count = torch.Size(entry.shape).numel()
        return torch.frombuffer(private, dtype=entry.dtype, count=count, offset=entry.begin - page).reshape(entry.shape)

    def entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise InputError(
                f"the checkpoint has no `{name}`", where=str(self.path), fix="give the weights of this very model"
            )
        return self.entries[name]


def files_of(folder: Path) -> list[Path]:
    """Raises InputError where there is neither file nor index."""
    if os.path.isfile(folder / ONE):  # also of names that are too long
        return [folder / ONE]
    index = folder / INDEX
    try:
        names = {*json.loads(index.read_bytes())["weight_map"].values()}
        return [folder / Path(name).name for name in sorted(names)]
    except OSError as error:
        raise InputError(
            f"there is no {ONE} and no index", where=str(folder), fix="give a folder with a model's safetensors"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError("this is no index of safetensors", where=str(index), fix="fetch it again") from error


def header(file: Path) -> dict[str, Entry]:
    """Raises InputError where a tensor would lie outside the file."""
    try:
        with readable(file), file.open("rb") as raw:
            size = os.fstat(raw.fileno()).st_size
            length = struct.unpack("<Q", raw.read(8))[0]
            if length > min(size, LONGEST_HEADER):
                raise ValueError("its header is too long")
            found: dict[str, Any] = json.loads(raw.read(length))
        return {name: entry(file, said, 8 + length, size) for name, said in found.items() if name != "__metadata__"}
    except (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"this is no safetensors file: {error}", where=str(file), fix="fetch it again") from error


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Raises InputError where the system does not read it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read the tensors: {error.strerror}", where=str(file), fix="check the path") from error


def entry(file: Path, said: dict[str, Any], data: int, size: int) -> Entry:
    """Raises ValueError, LookupError or TypeError where it is none."""
    dtype, shape, (begin, end) = DTYPES[said["dtype"]], tuple(said["shape"]), said["data_offsets"]
    wanted = torch.Size(shape).numel() * dtype.itemsize
    if min((begin, *shape)) < 0 or end - begin != wanted or data + end > size:
        raise ValueError(f"bytes {begin} to {end} are no {said['dtype']}{[*shape]}")
    return Entry(file, dtype, shape, data + begin, data + end)


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors in one file, in the order of their names: whole or not at all. Raises InputError."""
    names = sorted(tensors)
    described = {name: Described(tensors[name].dtype, tuple(tensors[name].shape)) for name in names}
    write_in_turn(path, described, (tensors[name] for name in names))


def write_in_turn(path: Path, described: Mapping[str, Described], values: Iterable[Tensor]) -> None:
    """The same of tensors that come one by one, in the order in which they are described."""
    said: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, (dtype, shape) in described.items():
        end = begin + torch.Size(shape).numel() * dtype.itemsize
        said[name] = {"dtype": NAMES[dtype], "shape": [*shape], "data_offsets": [begin, end]}
        begin = end
    head = json.dumps(said).encode()
    head += b" " * (-len(head) % ALIGNED)
    with whole(path, lasting=True) as out:
        out.write(struct.pack("<Q", len(head)) + head)
        for tensor in values:
            out.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            del tensor  # before the next one is made
