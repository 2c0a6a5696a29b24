"""Tensors in safetensors files: the length of the header, the header in JSON, and the bytes of all tensors.

It follows the format's description (github.com/huggingface/safetensors) and does not need that library.
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
from planner.files import atomic_write

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
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
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER_BYTES = 100_000_000  # bytes, as the format specifies
ALIGNMENT = 8  # bytes: tensors start at a multiple of this


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor is stored."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int  # offset in the file, as is `end`
    end: int


class TensorDescription(NamedTuple):
    """The dtype and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class SafetensorsCheckpoint:
    """All tensors of a file; or of a folder, in one file or in those that its index names. They are read
    one at a time.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError where there is no such checkpoint, or it is not valid."""
        self.path = path
        self.entries: dict[str, TensorEntry] = {}
        is_file = path.suffix == SUFFIX and not os.path.isdir(path)
        for file in [path] if is_file else checkpoint_files(path):
            self.entries |= read_header(file)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises InputError."""
        return self.entry(name).shape

    def read(self, name: str) -> Tensor:
        """A copy of a tensor in host memory, in the file's shape and dtype. Raises InputError."""
        entry = self.entry(name)
        data = bytearray(entry.end - entry.begin)
        if not data:
            return torch.empty(entry.shape, dtype=entry.dtype)
        with reading_file(entry.file), entry.file.open("rb") as raw:
            raw.seek(entry.begin)
            if raw.readinto(data) < len(data):
                raise InputError("the file is truncated", where=str(entry.file), fix="fetch it again")
        return torch.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)

    def read_mapped(self, name: str) -> Tensor:
        """A memory-mapped tensor in the file's shape; only what is accessed is read, for ranks that need a shard.

        Raises InputError.
        """
        entry = self.entry(name)
        if entry.begin == entry.end or entry.begin % entry.dtype.itemsize:  # empty or misaligned
            return self.read(name)
        page = (
            entry.begin - entry.begin % mmap.ALLOCATIONGRANULARITY
        )  # mapping the whole file would reserve memory for all of it
        with reading_file(entry.file), entry.file.open("rb") as raw:
            private = mmap.mmap(raw.fileno(), entry.end - page, access=mmap.ACCESS_COPY, offset=page)
        count = torch.Size(entry.shape).numel()
        return torch.frombuffer(private, dtype=entry.dtype, count=count, offset=entry.begin - page).reshape(entry.shape)

    def entry(self, name: str) -> TensorEntry:
        """Where a tensor is stored. Raises InputError."""
        if name not in self.entries:
            raise InputError(
                f"the checkpoint has no `{name}`", where=str(self.path), fix="give the weights of this very model"
            )
        return self.entries[name]


def checkpoint_files(folder: Path) -> list[Path]:
    """The files of a checkpoint in a folder. Raises InputError where there is neither file nor index."""
    if os.path.isfile(folder / SINGLE_FILE):  # handles names that are too long, too
        return [folder / SINGLE_FILE]
    index = folder / INDEX_FILE
    try:
        names = {*json.loads(index.read_bytes())["weight_map"].values()}
        return [folder / Path(name).name for name in sorted(names)]
    except OSError as error:
        raise InputError(
            f"there is no {SINGLE_FILE} and no index", where=str(folder), fix="give a folder with a model's safetensors"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError("this is not an index of safetensors files", where=str(index), fix="fetch it again") from error


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of a file by name. Raises InputError where a tensor would be outside the file."""
    try:
        with reading_file(file), file.open("rb") as raw:
            size = os.fstat(raw.fileno()).st_size
            length = struct.unpack("<Q", raw.read(8))[0]
            if length > min(size, MAX_HEADER_BYTES):
                raise ValueError("its header is too long")
            parsed: dict[str, Any] = json.loads(raw.read(length))
        return {
            name: parse_entry(file, described, 8 + length, size)
            for name, described in parsed.items()
            if name != "__metadata__"
        }
    except (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"this is no safetensors file: {error}", where=str(file), fix="fetch it again") from error


@contextmanager
def reading_file(file: Path) -> Iterator[None]:
    """Raises InputError where the system cannot read the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read the tensors: {error.strerror}", where=str(file), fix="check the path") from error


def parse_entry(file: Path, described: dict[str, Any], data: int, size: int) -> TensorEntry:
    """Parse the description of one tensor. Raises ValueError, LookupError or TypeError where it is not valid."""
    dtype, shape, (begin, end) = DTYPES[described["dtype"]], tuple(described["shape"]), described["data_offsets"]
    expected_bytes = torch.Size(shape).numel() * dtype.itemsize
    if min((begin, *shape)) < 0 or end - begin != expected_bytes or data + end > size:
        raise ValueError(f"bytes {begin} to {end} are no {described['dtype']}{[*shape]}")
    return TensorEntry(file, dtype, shape, data + begin, data + end)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors (any shapes) to one file, in the order of their names, atomically. Raises InputError."""
    names = sorted(tensors)
    described = {name: TensorDescription(tensors[name].dtype, tuple(tensors[name].shape)) for name in names}
    write_tensors_streamed(path, described, (tensors[name] for name in names))


def write_tensors_streamed(path: Path, described: Mapping[str, TensorDescription], values: Iterable[Tensor]) -> None:
    """Write tensors that arrive one by one, with the shapes and in the order described, atomically.

    Raises InputError.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, (dtype, shape) in described.items():
        end = begin + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": [*shape], "data_offsets": [begin, end]}
        begin = end
    header_bytes = json.dumps(header).encode()
    header_bytes += b" " * (-len(header_bytes) % ALIGNMENT)
    with atomic_write(path, durable=True) as out:
        out.write(struct.pack("<Q", len(header_bytes)) + header_bytes)
        for tensor in values:
            out.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            del tensor  # before the next one is computed
