"""Earlier checkpoints of a run that are kept beside its newest: the last few, and those after each so many steps.

    FOLDER/kept/step-300/checkpoint.yaml    as in FOLDER, so that `--resume FOLDER/kept/step-300` goes on from there
    FOLDER/kept/step-300/states-a/          moved here, not copied

A folder gets its name last and loses it first, so that one with a name is complete.
"""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from planner import files
from planner.files import sync_folder
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, OTHER_STATES_FOLDER, CheckpointFile, read_index
from planner.runtime.run_options import Retention
from planner.specs.base import with_fields

KEPT = "kept"  # folder of earlier checkpoints
MOVING, REMOVING = "moving", "removing"  # of one until it is complete; of one that goes


def retire(folder: Path, previous: CheckpointFile, retention: Retention) -> None:
    """Keep the checkpoint that was the newest in `folder`, or remove it, and remove those that are no longer kept."""
    if retention.last > 1 or retention.keeps_forever(previous.steps):
        keep(folder, previous)
    else:
        shutil.rmtree(folder / previous.states, ignore_errors=True)
    passing = [steps for steps in sorted(kept_steps(folder)) if not retention.keeps_forever(steps)]
    for steps in passing[: max(0, len(passing) - (retention.last - 1))]:
        remove(folder, steps)


def keep(folder: Path, previous: CheckpointFile) -> None:
    """Move the states of a checkpoint into a folder of its own, with its index. Raises OSError and InputError."""
    moving = folder / KEPT / MOVING
    shutil.rmtree(moving, ignore_errors=True)
    moving.mkdir(parents=True)
    files.write(moving / INDEX_FILE, previous, durable=True)
    os.replace(folder / previous.states, moving / previous.states)
    sync_folder(moving)
    remove(folder, previous.steps)  # of steps that were trained twice
    os.replace(moving, step_folder(folder, previous.steps))
    sync_folder(folder / KEPT)


def remove(folder: Path, steps: int) -> None:
    """Remove a kept checkpoint, if there is one: its name first, since the rest goes file by file. Raises OSError."""
    removing = folder / KEPT / REMOVING
    shutil.rmtree(removing, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.replace(step_folder(folder, steps), removing)
        shutil.rmtree(removing, ignore_errors=True)


def put_back_kept(folder: Path) -> bool:
    """Make the newest kept checkpoint the one of the folder, whose own is damaged; False: none is kept. Until its index
    is there the damaged one stays. Raises OSError and InputError.
    """
    steps = max(kept_steps(folder), default=None)
    if steps is None:
        return False
    kept, damaged = step_folder(folder, steps), read_index(folder).states
    side = OTHER_STATES_FOLDER[damaged]
    index = files.read(kept / INDEX_FILE, CheckpointFile)
    shutil.rmtree(folder / side, ignore_errors=True)
    shutil.copytree(kept / index.states, folder / side)
    sync_folder(folder / side)
    files.write(folder / INDEX_FILE, with_fields(index, states=side), durable=True)
    shutil.rmtree(folder / damaged, ignore_errors=True)
    remove(folder, steps)
    return True


def kept_steps(folder: Path) -> list[int]:
    """After how many steps there are kept checkpoints; a folder without an index is nobody's."""
    names = os.listdir(folder / KEPT) if (folder / KEPT).is_dir() else []
    steps = [int(name.removeprefix("step-")) for name in names if re.fullmatch(r"step-\d+", name)]
    return [each for each in steps if (step_folder(folder, each) / INDEX_FILE).is_file()]


def step_folder(folder: Path, steps: int) -> Path:
    return folder / KEPT / f"step-{steps}"
