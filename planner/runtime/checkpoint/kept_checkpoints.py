"""Earlier checkpoints of a run that are kept beside its newest: the last few, and those after each so many steps.

    FOLDER/kept/step-300/checkpoint.yaml    as in FOLDER, so that `--resume FOLDER/kept/step-300` goes on from there
    FOLDER/kept/step-300/states-a/          moved here, not copied

A folder gets its name last, so that one with a name is complete.
"""

import os
import re
import shutil
from pathlib import Path

from planner import files
from planner.files import sync_folder
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, CheckpointFile
from planner.runtime.run_options import Retention

KEPT, MOVING = "kept", "moving"  # folder of earlier checkpoints; of one until it is complete


def retire(folder: Path, previous: CheckpointFile, retention: Retention) -> None:
    """Keep the checkpoint that was the newest in `folder`, or remove it, and remove those that are no longer kept."""
    if retention.last > 1 or retention.keeps_forever(previous.steps):
        keep(folder, previous)
    else:
        shutil.rmtree(folder / previous.states, ignore_errors=True)
    passing = [steps for steps in sorted(kept_steps(folder)) if not retention.keeps_forever(steps)]
    for steps in passing[: max(0, len(passing) - (retention.last - 1))]:
        shutil.rmtree(step_folder(folder, steps), ignore_errors=True)


def keep(folder: Path, previous: CheckpointFile) -> None:
    """Move the states of a checkpoint into a folder of its own, with its index. Raises OSError and InputError."""
    moving, final = folder / KEPT / MOVING, step_folder(folder, previous.steps)
    shutil.rmtree(moving, ignore_errors=True)
    moving.mkdir(parents=True)
    files.write(moving / INDEX_FILE, previous, durable=True)
    os.replace(folder / previous.states, moving / previous.states)
    sync_folder(moving)
    shutil.rmtree(final, ignore_errors=True)  # of steps that were trained twice
    os.replace(moving, final)
    sync_folder(folder / KEPT)


def kept_steps(folder: Path) -> list[int]:
    """After how many steps there are kept checkpoints."""
    names = os.listdir(folder / KEPT) if (folder / KEPT).is_dir() else []
    return [int(name.removeprefix("step-")) for name in names if re.fullmatch(r"step-\d+", name)]


def step_folder(folder: Path, steps: int) -> Path:
    return folder / KEPT / f"step-{steps}"
