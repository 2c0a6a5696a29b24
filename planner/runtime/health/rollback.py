"""A run whose loss spiked for good goes on from its last checkpoint, without the batches that led there."""

import time
from dataclasses import replace
from pathlib import Path

from planner.errors import RunFailed
from planner.files import path_exists
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, read_index
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.health.skipped_batches import SkippedBatches, read_skipped, skipping, write_skipped
from planner.runtime.health.spikes import Spike
from planner.runtime.run_options import RunOptions
from planner.runtime.run_result import RunResult

NOTE_S = 60.0  # network file systems keep what they looked up
FIX = "lower the learning rate, clip gradients (--clip), or look at the batches of these steps"


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
