"""Tensors in safetensors files, whose headers the library `safetensors` reads and checks.

Two things are done here, as the library cannot: it maps a whole file privately, which Linux refuses for one larger than
memory, where a rank needs a shard of it (its other way, `backend="pread"`, reads whole tensors, in four times the
time); and it writes only tensors that are in memory all at once.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from planner.errors import InputError
from planner.files import atomic_write, plain_name, read_head, read_json
from planner.units import MIB, byte_size

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
SUFFIX = ".safetensors"
DTYPES = {
    "C64": torch.complex64,
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}  # none of less than a byte
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
HEADER_BYTES = 32 * MIB  # at most; of a million tensors, as many as no model has
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
    """All tensors of a file; or of a folder, in one file or those that its index names. They are read one by one."""

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
        """A tensor in the file's dtype, a private memory map of its bytes alone: only what is accessed is read, and
        writing to it leaves the file as it is. Raises InputError.
        """
        entry = self.entry(name)
        data = torch.empty(0, dtype=torch.uint8)
        if entry.end > entry.begin:  # nothing cannot be mapped
            with reading_file(entry.file):
                data = torch.from_numpy(
                    np.memmap(entry.file, mode="c", offset=entry.begin, shape=entry.end - entry.begin)
                )
        if entry.begin % entry.dtype.itemsize:  # misaligned in other programs' files
            data = data.clone()
        return data.view(entry.dtype).reshape(entry.shape)

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
    if not os.path.exists(index):
        fix = "give a folder with a model's safetensors"
        raise InputError(f"there is no {SINGLE_FILE} and no index", where=str(folder), fix=fix)
    try:
        names = {*read_json(index, "fetch it again")["weight_map"].values()}
        return [folder / plain_name(name, str(index)) for name in sorted(names)]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError("this is not an index of safetensors files", where=str(index), fix="fetch it again") from error


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of a file by name. Raises InputError unless they fill it, one after the other."""
    entries: dict[str, TensorEntry] = {}
    require_small_header(file)
    with (
        reading_file(file),
        safe_open(file, framework="numpy") as opened,  # for torch it would map the file privately
    ):
        end = file.stat().st_size
        for name in reversed(opened.offset_keys()):
            described = opened.get_slice(name)
            shape, dtype = tuple(described.get_shape()), DTYPES.get(described.get_dtype())
            if dtype is None:
                what = f"`{name}` is of {described.get_dtype()}, which is not read"
                raise InputError(what, where=str(file), fix="give weights of another dtype")
            begin = end - torch.Size(shape).numel() * dtype.itemsize  # the library gives no offsets
            entries[name] = TensorEntry(file, dtype, shape, begin, end)
            end = begin
    return entries


def require_small_header(file: Path) -> None:
    """Raises InputError unless this is a file, with a header that the library may have in memory."""
    size = int.from_bytes(read_head(file, 8), "little")
    if size > HEADER_BYTES:
        what = f"this is no safetensors file: its header would have {byte_size(size)}"
        raise InputError(what, where=str(file), fix="fetch it again")


def read_metadata(file: Path) -> dict[str, str]:
    """What a file says besides its tensors. Raises InputError."""
    require_small_header(file)
    with reading_file(file), safe_open(file, framework="numpy") as opened:
        return opened.metadata() or {}


@contextmanager
def reading_file(file: Path) -> Iterator[None]:
    """Raises InputError where the system cannot read the file, or it is damaged."""
    try:
        yield
    except OSError as error:
        what = f"cannot read the tensors: {error.strerror or error}"
        raise InputError(what, where=str(file), fix="check the path") from error
    except MemoryError as error:  # the library maps the whole file, read-only, while it reads the header
        what, fix = f"cannot read the tensors: {error}", "allow as many addresses as the file has bytes: ulimit -v"
        raise InputError(what, where=str(file), fix=fix) from error
    except (SafetensorError, ValueError) as error:  # a size beyond 64 bits, or beyond the end of a file that was cut
        raise InputError(f"this is no safetensors file: {error}", where=str(file), fix="fetch it again") from error


def write_tensors_streamed(
    path: Path,
    described: Mapping[str, TensorDescription],
    values: Iterable[Tensor],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Write tensors that arrive one by one, with the shapes and in the order described, atomically; returns the SHA-256
    of the file's bytes. `metadata`: what the file says besides. Raises InputError.

    `save_file` of the library is not used: it takes all tensors at once, where each is put together from ranks' shards
    in its turn; and it neither flushes its file to disk nor replaces the previous one whole.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    begin = 0
    for name, (dtype, shape) in described.items():
        end = begin + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": [*shape], "data_offsets": [begin, end]}
        begin = end
    header_bytes = json.dumps(header).encode()
    header_bytes += b" " * (-len(header_bytes) % ALIGNMENT)
    digest = hashlib.sha256()
    with atomic_write(path, durable=True) as out:
        for block in file_blocks(header_bytes, values):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def file_blocks(header: bytes, values: Iterable[Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: how long its header is, the header, and tensors that arrive one by one."""
    yield struct.pack("<Q", len(header)) + header
    for tensor in values:
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        del tensor  # before the next one is computed
