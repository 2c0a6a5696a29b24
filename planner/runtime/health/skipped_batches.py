"""Batches that a run skips, behind a malignant spike: noted beside the checkpoint, so that a resumed run skips them.

    FOLDER/skipped.yaml    planner.skipped/1

Batches are counted from 0 as the data has them. Step n trains the n-th that is not skipped.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from planner import files
from planner.runtime.health.spikes import Spike
from planner.specs.base import Spec

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


def batch_of(step: int, skipped: Sequence[SkippedBatches]) -> int:
    """The batch of a step, both counted from 0; `skipped`: apart, in any order."""
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
