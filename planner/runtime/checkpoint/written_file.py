"""The file that one rank writes of a checkpoint, and what is said where it cannot."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from planner.errors import InputError, RunFailed
from planner.models.checkpoints import HeldShard, all_finite, write_shards
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, NEW_STATES, shard_file


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
