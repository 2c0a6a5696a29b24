"""Outputs of frozen encoders that are kept for later epochs: read where an earlier epoch left them, else computed and
left for the next.

A key is the digest of an item's contents and of all that its outputs depend on besides: the encoder's shape and
weights, and the dtype in which it computes. So a changed item, or other weights, find nothing. All items of a forward
are read or all are computed: products of another number of rows may round differently, and a run that keeps features is
to be the same as one that does not, bit for bit.

In memory features last as long as the process. On a disk they are one file each, whose first bytes are the digest of
its key and of the rest: a file appears complete or not at all, and one that was cut, edited or misplaced is noticed.
Ranks share a folder: two that write the same key write the same bytes.
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from planner import files
from planner.errors import InputError
from planner.files import write_bytes
from planner.models import Batch, held_values
from planner.plan.task import Task
from planner.runtime.run_result import NO_FEATURES, FeatureCounts
from planner.runtime.state.rank_state import RankState
from planner.runtime.state.sharded_stage import ShardedStage

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


FORMAT = b"planner.features/1"  # of keys: another one where the same contents and weights would give other outputs
Contents = tuple[int, tuple[int, ...]]  # an item by number, with the tokens of its parts


@dataclass
class KeptFeatures:
    """Reads and writes the outputs of one encoder of a rank."""

    local: RankState
    module: str
    store: FeatureStore
    counts: FeatureCounts = NO_FEATURES
    keys: dict[Contents, str] = field(default_factory=dict)  # of items whose contents were read before
    weights: bytes = b""  # digest of shape, weights and dtype

    @property
    def stage(self) -> ShardedStage:
        """The encoder's only stage, all of whose layers are here."""
        return self.local.stages[self.module][0]

    def read(self, task: Task, batch: Batch) -> Tensor | None:
        """The outputs (rows, width) of a forward's items; None where those of any item have to be computed."""
        found: list[Tensor] = []
        for key in self.keys_of(task, batch):
            values = self.store.read(key, self.stage.compute_dtype)
            if isinstance(values, Damaged):
                logging.getLogger(__name__).warning("damaged, and so computed anew: %s", values.path)
                self.counts += FeatureCounts(damaged=1)
            if values is None or isinstance(values, Damaged):
                self.counts += FeatureCounts(computed=len(task.items))
                return None
            found.append(values.view(-1, self.stage.spec.sent_width))
        self.counts += FeatureCounts(read=len(found))
        return torch.cat(found).to(self.stage.clock.device)

    def write(self, task: Task, batch: Batch, outputs: Tensor) -> None:
        """Keeps the outputs (rows, width) that a forward computed."""
        values, unit = outputs.detach().cpu(), self.stage.spec.tokens_per_output
        for key, (first, last) in zip(self.keys_of(task, batch), item_spans(task), strict=True):
            self.store.write(key, values[first // unit : last // unit])

    def keys_of(self, task: Task, batch: Batch) -> list[str]:
        """The keys of a forward's items."""
        if not self.weights:
            self.weights = bytes.fromhex(key_of(weight_parts(self.stage)))
        parts, found = task.parts or [(size,) for size in task.sizes], []
        for item, lengths, span in zip(task.items, parts, item_spans(task), strict=True):
            if (item, lengths) not in self.keys:
                contents = item_parts(batch, lengths, span, repr(self.local.grids[self.module].get(item)))
                self.keys[item, lengths] = key_of(iter((FORMAT, self.weights, *contents)))
            found.append(self.keys[item, lengths])
        return found

    def take_counts(self) -> FeatureCounts:
        """The counts since the last call."""
        taken, self.counts = self.counts, NO_FEATURES
        return taken


def kept_features(local: RankState, folder: Path | None) -> dict[str, KeptFeatures]:
    """By module, the features that a plan keeps on this rank. `folder`: of those on a disk."""
    found: dict[str, KeptFeatures] = {}
    for name in local.stages:
        source = local.plan.layouts[name].features
        if source != "computed":
            assert source == "host" or folder is not None, "checked before the run"
            store = HostStore() if folder is None or source == "host" else DiskStore(folder)
            found[name] = KeptFeatures(local, name, store)
    return found


def item_spans(task: Task) -> Sequence[tuple[int, int]]:
    """The tokens of each item of a forward among all of them."""
    return [*pairwise(accumulate(task.sizes, initial=0))]


def item_parts(batch: Batch, lengths: Sequence[int], span: tuple[int, int], grid: str) -> Iterator[bytes]:
    """What the outputs of an item are computed from: its parts, the places of its tokens, and their contents."""
    yield repr(tuple(lengths)).encode()
    yield grid.encode()
    for tensor in (batch.inputs, batch.positions, batch.places):
        if tensor is not None:
            rows = tensor[span[0] : span[1]]
            yield f"{rows.dtype} {tuple(rows.shape)}".encode()
            yield raw_bytes(rows)


def weight_parts(stage: ShardedStage) -> Iterator[bytes]:
    """Shape, dtype and weights of an encoder, all of which this rank has."""
    yield files.json_text(stage.spec).encode()
    yield str(stage.compute_dtype).encode()
    for name, weight in sorted(stage.weights().items()):
        yield f"{name} {weight.dtype} {tuple(weight.shape)}".encode()
        yield raw_bytes(held_values(weight))
