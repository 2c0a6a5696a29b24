"""A checkpoint that is resumed has the bytes that were saved: ranks share its files, each reads some of them whole."""

import hashlib
from pathlib import Path

from planner.errors import InputError
from planner.launch import Worker
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, file_blocks, read_index


class DamagedCheckpoint(InputError):
    """A checkpoint is not what was saved."""


def require_intact(worker: Worker, folder: Path | None) -> None:
    """Raises DamagedCheckpoint on the rank that finds a file of the checkpoint `folder` (None: nothing is resumed) with
    other bytes than its index says.
    """
    if folder is None:
        return
    index = read_index(folder)
    for name in sorted(index.digests)[worker.rank :: worker.world_size]:
        file = folder / index.states / name
        if file_digest(file) != index.digests[name]:
            fix = f"resume from another copy; or, to train on what is there, write its sha256sum into {INDEX_FILE}"
            raise DamagedCheckpoint("the file has other bytes than were saved: it is damaged", where=str(file), fix=fix)


def file_digest(file: Path) -> str:
    """SHA-256 of a file. Raises InputError."""
    digest = hashlib.sha256()
    try:
        for block in file_blocks(file):
            digest.update(block)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=str(file), fix="check the path") from error
    return digest.hexdigest()
