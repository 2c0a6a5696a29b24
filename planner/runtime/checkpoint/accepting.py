"""How a checkpoint is written: each rank writes a file, and what all have written becomes the checkpoint of the folder
by one rename of its index.

The one before stays until that is on disk. On any death before, it is still the checkpoint; after, the new one is.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from planner import files
from planner.errors import InputError, RunFailed
from planner.files import path_exists, sync_folder
from planner.models.checkpoints import HeldShard, all_finite, write_shards
from planner.runtime.checkpoint.checkpoint_index import (
    INDEX_FILE,
    NEW_STATES,
    OTHER_STATES_FOLDER,
    UNACCEPTED,
    CheckpointFile,
    StatesFolder,
    read_index,
    shard_file,
)
from planner.runtime.checkpoint.kept_checkpoints import retire
from planner.runtime.run_options import Retention
from planner.specs.base import with_fields

SEEN_S = 60.0  # until a file that another machine wrote is seen here: network file systems keep what they looked up


class WrittenFile(NamedTuple):
    """A file that a rank has written."""

    name: str
    digest: str  # SHA-256
    size: int  # bytes


def write_file(folder: Path, rank: int, shards: Mapping[str, HeldShard], steps: int) -> WrittenFile:
    """Writes a rank's shards. Raises RunFailed where it cannot, or a number is not finite."""
    path = folder / NEW_STATES / shard_file(rank)
    try:
        digest = write_shards(path, shards, finite_values(shards, steps))
        return WrittenFile(path.name, digest, path.stat().st_size)
    except InputError as error:
        raise save_failure(steps, error.message, error.where) from error
    except OSError as error:
        raise save_failure(steps, f"cannot write: {error.strerror}", str(path)) from error


def finite_values(shards: Mapping[str, HeldShard], steps: int) -> Iterator[Tensor]:
    """Yields the values of one shard after the other. Raises RunFailed for one that is not finite."""
    for name, shard in shards.items():
        if not all_finite(shard.values):
            raise RunFailed(
                f"`{name}` is not finite after step {steps}: the checkpoint is not saved",
                where=f"step {steps}",
                fix="resume from the previous checkpoint, if there is one, with a lower learning rate or with --clip",
            )
        yield shard.values


def save_failure(steps: int, why: str, where: str) -> RunFailed:
    fix = f"make room, or fix what is named here; then --resume continues from the {INDEX_FILE} that is there, if any"
    return RunFailed(f"the checkpoint after {steps} steps could not be saved: {why}", where=where, fix=fix)


def accept(
    folder: Path, of_run: CheckpointFile, steps: int, written: Iterable[WrittenFile], retention: Retention
) -> CheckpointFile:
    """Accepts what ranks wrote after `steps` steps, completing the index `of_run`; returns that. Raises RunFailed."""
    try:
        for file in written:
            require_seen(folder / NEW_STATES / file.name, file.size)
        previous = read_index(folder) if path_exists(folder / INDEX_FILE, str(folder)) else None
        side = unused_states_folder(previous)
        shutil.rmtree(folder / side, ignore_errors=True)
        (folder / NEW_STATES / UNACCEPTED).touch()
        os.replace(folder / NEW_STATES, folder / side)
        sync_folder(folder / side)
        sync_folder(folder)
        index = with_fields(of_run, steps=steps, states=side, digests={file.name: file.digest for file in written})
        files.write(folder / INDEX_FILE, index, durable=True)
        (folder / side / UNACCEPTED).unlink()
        if previous:
            retire(folder, previous, retention)
        return index
    except InputError as error:
        raise save_failure(steps, error.message, error.where) from error
    except OSError as error:
        raise save_failure(steps, f"cannot write: {error.strerror}", str(folder)) from error


def require_seen(file: Path, size: int) -> None:
    """Raises InputError where a file that some rank has written is not here: folders of several machines."""
    deadline = time.monotonic() + SEEN_S
    while not file.is_file() or file.stat().st_size != size:
        if time.monotonic() > deadline:
            message = "a rank has written this file on its machine, and it is not here"
            raise InputError(message, where=str(file), fix="--save a folder that all machines share")
        time.sleep(SEEN_S / 600)


def unused_states_folder(current: CheckpointFile | None) -> StatesFolder:
    """The states folder that the current checkpoint, if there is one, does not use."""
    return OTHER_STATES_FOLDER[current.states] if current else "states-a"
