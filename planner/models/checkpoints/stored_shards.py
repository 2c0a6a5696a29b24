"""Tensors of which each of several safetensors files has some shards, and says of which region each is: written by
ranks, each its own, and read by ranks of another layout, each what it holds of them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from planner.errors import InputError
from planner.models.checkpoints.safetensors_files import (
    SafetensorsCheckpoint,
    TensorDescription,
    read_metadata,
    write_tensors_streamed,
)
from planner.models.tensor_region import Span, TensorRegion, copy_shared, whole_region

REGIONS = "regions"  # key of a file's metadata
MATCHING_CHECKPOINT = "give a checkpoint of this very model"


class HeldShard(NamedTuple):
    """A shard in memory: the numbers of one region of a tensor."""

    region: TensorRegion
    values: Tensor  # of the region's shape


class StoredShard(NamedTuple):
    """A shard in a file."""

    region: TensorRegion
    file: SafetensorsCheckpoint
    name: str


@dataclass(frozen=True, slots=True)
class StoredShards:
    """The tensors of a folder, by name, and where their shards are stored."""

    folder: Path
    shards: Mapping[str, Sequence[StoredShard]]
    prefix: str = ""  # of their names in the files

    def within(self, prefix: str) -> "StoredShards":
        """The tensors whose names begin with `prefix`, by names without it."""
        found = {name.removeprefix(prefix): of for name, of in self.shards.items() if name.startswith(prefix)}
        return StoredShards(self.folder, found, self.prefix + prefix)

    def shards_of(self, name: str) -> Sequence[StoredShard]:
        """The shards of a tensor. Raises InputError."""
        if name not in self.shards:
            what = f"the checkpoint has no `{self.prefix}{name}`"
            raise InputError(what, where=str(self.folder), fix=MATCHING_CHECKPOINT)
        return self.shards[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The full shape of a tensor. Raises InputError unless its shards make all of it."""
        regions = {shard.region for shard in self.shards_of(name)}
        full = next(iter(regions)).full
        if any(region.full != full for region in regions) or sum(region.numbers for region in regions) != prod(full):
            raise self.incomplete(name)
        return full

    def describe(self, name: str) -> TensorDescription:
        """Dtype and full shape of a tensor. Raises InputError."""
        first = self.shards_of(name)[0]
        return TensorDescription(first.file.entry(first.name).dtype, self.shape(name))

    def fill(self, name: str, shard: HeldShard) -> None:
        """Fill a shard, in its own dtype; of the files only what it has is read. Raises InputError."""
        missing = shard.region.numbers
        for stored in self.shards_of(name):
            if stored.region.full != shard.region.full:
                what = f"`{self.prefix}{name}` is {[*stored.region.full]}, the model has {[*shard.region.full]}"
                raise InputError(what, where=str(self.folder), fix=MATCHING_CHECKPOINT)
            missing -= copy_shared(shard.values, shard.region, stored.file.read(stored.name), stored.region)
        if missing:
            raise self.incomplete(name)

    def read(self, name: str) -> Tensor:
        """A full tensor. Raises InputError."""
        described = self.describe(name)
        full = torch.empty(described.shape, dtype=described.dtype)
        self.fill(name, HeldShard(whole_region(described.shape), full))
        return full

    def incomplete(self, name: str) -> InputError:
        what = f"the files have some of `{self.prefix}{name}`, but not all"
        return InputError(what, where=str(self.folder), fix="resume from another copy")


def read_shards(folder: Path, names: Iterable[str]) -> StoredShards:
    """The tensors in these files of a folder. Raises InputError where one is missing or damaged."""
    found: dict[str, list[StoredShard]] = {}
    for file_name in names:
        file = SafetensorsCheckpoint(folder / file_name)
        regions = regions_in(folder / file_name)
        for name, entry in file.entries.items():
            if name not in regions or regions[name].shape != entry.shape:
                what = f"the file does not say which part of `{name}` it has"
                raise InputError(what, where=str(folder / file_name), fix="resume from another copy")
            found.setdefault(name, []).append(StoredShard(regions[name], file, name))
    return StoredShards(folder, found)


def regions_in(file: Path) -> dict[str, TensorRegion]:
    """By tensor, the region of a file's shard. Raises InputError."""
    try:
        return {
            name: TensorRegion(
                tuple(map(int, full)), tuple(tuple(Span(int(a), int(b)) for a, b in spans) for spans in by_dim)
            )
            for name, (full, by_dim) in json.loads(read_metadata(file)[REGIONS]).items()
        }
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        what = "the file does not say which parts of tensors it has"
        raise InputError(what, where=str(file), fix="give a folder that `planner run --save` wrote") from error


def write_shards(path: Path, shards: Mapping[str, HeldShard], values: Iterable[Tensor]) -> str:
    """Write shards, whose values arrive in order, to one file, atomically; returns its SHA-256. Raises InputError."""
    regions = {name: (shard.region.full, shard.region.spans) for name, shard in shards.items()}
    described = {name: TensorDescription(shard.values.dtype, shard.region.shape) for name, shard in shards.items()}
    return write_tensors_streamed(path, described, values, {REGIONS: json.dumps(regions, separators=(",", ":"))})
