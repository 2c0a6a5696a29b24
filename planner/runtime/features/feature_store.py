"""Where outputs of frozen encoders are kept between epochs, by a key that says what they were computed from.

In memory they last as long as the process. On a disk they are one file each, whose first bytes are the digest of its
key and of the rest: a file appears complete or not at all, and one that was cut, edited or misplaced is noticed. Ranks
share a folder: two that write the same key write the same bytes.
"""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from planner.errors import InputError
from planner.files import write_bytes

DIGEST_BYTES = hashlib.sha256().digest_size


class Damaged(NamedTuple):
    """A file that is there, and is not what was written."""

    path: Path


class FeatureStore(Protocol):
    """Tensors in host memory by key."""

    def read(self, key: str, dtype: torch.dtype) -> Tensor | Damaged | None:
        """The numbers (any) that were written under a key; None where there are none."""

    def write(self, key: str, values: Tensor) -> None:
        """Keeps a tensor of host memory under a key."""


class HostStore:
    """Features in this process's memory."""

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def read(self, key: str, dtype: torch.dtype) -> Tensor | Damaged | None:
        return self.values.get(key)

    def write(self, key: str, values: Tensor) -> None:
        self.values[key] = values.clone()


class DiskStore:
    """Features in files of a folder. One that cannot be written is left out: it is computed anew."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.full = folder, False

    def path(self, key: str) -> Path:
        """The file of a key, among no more than a few thousand in a folder."""
        return self.folder / key[:2] / key

    def read(self, key: str, dtype: torch.dtype) -> Tensor | Damaged | None:
        try:
            raw = bytearray(self.path(key).read_bytes())
        except FileNotFoundError:
            return None
        except OSError:
            return Damaged(self.path(key))
        values = memoryview(raw)[DIGEST_BYTES:]
        if len(raw) <= DIGEST_BYTES or raw[:DIGEST_BYTES] != digest_of(key, values) or len(values) % dtype.itemsize:
            return Damaged(self.path(key))
        return torch.frombuffer(raw, dtype=dtype, offset=DIGEST_BYTES)

    def write(self, key: str, values: Tensor) -> None:
        if self.full:
            return
        raw = raw_bytes(values)
        try:
            write_bytes(self.path(key), digest_of(key, raw) + raw)
        except InputError as error:
            self.full = True
            what = "features are computed in every epoch from now on: %s"
            logging.getLogger(__name__).warning(what, error)


def digest_of(key: str, values: bytes | memoryview) -> bytes:
    """The first bytes of a key's file."""
    found = hashlib.sha256(key.encode())
    found.update(values)
    return found.digest()


def raw_bytes(values: Tensor) -> bytes:
    """The bytes of a tensor, of any dtype."""
    return values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def key_of(parts: Iterator[bytes]) -> str:
    """A key: the SHA-256 of what something was computed from, each part with its length."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()
