"""A run whose loss spiked for good goes on from its last checkpoint, without the batches that led there. These are
noted beside the checkpoint, so that a resumed run skips them too.

    FOLDER/skipped.yaml    planner.skipped/1

Batches are counted from 0 as the data has them. Step n trains the n-th that is not skipped.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from planner import files
from planner.errors import RunFailed
from planner.files import path_exists
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, read_index
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.health.spikes import Spike
from planner.runtime.run_options import RunOptions
from planner.runtime.run_result import RunResult
from planner.specs.base import Spec

NOTE_S = 60.0  # network file systems keep what they looked up
FIX = "lower the learning rate, clip gradients (--clip), or look at the batches of these steps"
SKIPPED_FILE = "skipped.yaml"


class SkippedBatches(Spec, kw_only=True):
    """Consecutive batches that are not trained on."""

    first: int  # from 0
    last: int
    because: str


class SkippedFile(Spec, kw_only=True):
    """`planner.skipped/1`: the batches that a run skips."""

    FORMAT: ClassVar[str] = "planner.skipped/1"
    format: str
    skipped: tuple[SkippedBatches, ...]


def roll_back(options: RunOptions, spike: Spike) -> RunOptions:
    """The options of the run that goes on; what it skips is noted beside its checkpoint. Raises RunFailed where there
    is no checkpoint, InputError where the note cannot be written.
    """
    folder, where = options.save, f"steps {spike.first} to {spike.last}"
    if folder is None or not path_exists(folder / INDEX_FILE, str(folder)):
        message = "the loss spiked for good before the first checkpoint: there is nothing to roll back to"
        raise RunFailed(message, where=where, fix=f"{FIX}; or save earlier, with --save-every")
    done = read_index(folder).steps
    write_skipped(folder, skipping(read_skipped(folder), spike, done, before=options.spike_steps))
    return resolve_resume(replace(options, resume=folder, verify=False))


def await_note(folder: Path | None, before: tuple[SkippedBatches, ...]) -> None:
    """Wait until another rank has noted that more is skipped than `before`, for a while."""
    deadline = time.monotonic() + NOTE_S
    while read_skipped(folder) == before and time.monotonic() < deadline:
        time.sleep(NOTE_S / 600)


def joined(first: RunResult, again: RunResult) -> RunResult:
    """The result of a run that was rolled back and went on: without the steps that were undone."""
    kept = first.steps[: again.steps_before - first.steps_before]
    return replace(again, steps=kept + again.steps, steps_before=first.steps_before, verify=first.verify)


def batch_of(step: int, skipped: Sequence[SkippedBatches]) -> int:
    """The batch of a step, both counted from 0; `skipped`: ranges that do not overlap, in any order."""
    batch = step
    for each in sorted(skipped, key=lambda each: each.first):
        if batch >= each.first:
            batch += each.last - each.first + 1
    return batch


def skipping(skipped: Sequence[SkippedBatches], spike: Spike, done: int, before: int) -> tuple[SkippedBatches, ...]:
    """What is skipped where a run is rolled back behind this spike to a checkpoint after `done` steps: also the batches
    of the spike, and of the `before` steps in front of it.
    """
    first = batch_of(max(done, spike.first - 1 - before), skipped)
    last = batch_of(spike.last - 1, skipped)
    apart = [each for each in skipped if each.last < first or each.first > last]  # the others lie within
    because = f"the loss rose in step {spike.first} and stayed until step {spike.last}"
    return (*apart, SkippedBatches(first=first, last=last, because=because))


def read_skipped(folder: Path | None) -> tuple[SkippedBatches, ...]:
    """What the run that saved in this folder skips. Raises InputError."""
    file = folder / SKIPPED_FILE if folder else None
    return files.read(file, SkippedFile).skipped if file and file.exists() else ()


def carry_skipped(resume: Path | None, save: Path | None) -> None:
    """A run that resumes from one folder and saves in another skips there what it skips here. Raises InputError."""
    if save and (skipped := read_skipped(resume)) != read_skipped(save):
        write_skipped(save, skipped)


def write_skipped(folder: Path, skipped: tuple[SkippedBatches, ...]) -> None:
    """Write it, in one step. Raises InputError."""
    files.write(folder / SKIPPED_FILE, SkippedFile(format=SkippedFile.FORMAT, skipped=skipped), durable=True)
