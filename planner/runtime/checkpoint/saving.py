"""Saves checkpoints behind the steps of a run: training waits for copies in the host's memory only.

A rank copies the shards that it writes, and a thread of it does the rest, while training goes on: it writes them to a
file of this rank's own, tells the others, and on rank 0 accepts the checkpoint when all have written theirs. Threads
talk in a group of their own. A checkpoint that is to begin while one is being written waits for it.

A rank whose write fails raises that behind its next step, or at the end of the run; the checkpoint before stays. The
last one of a run is not copied, as nothing is trained any more, and the run does not end before it is accepted. One run
at a time saves in a folder.
"""

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import torch.distributed as dist

from planner.files import hold_lock
from planner.launch import Worker
from planner.launch.communication import all_gather_messages, barrier
from planner.models.checkpoints import HeldShard
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.accepting import WrittenFile, accept, write_file
from planner.runtime.checkpoint.checkpoint_index import NEW_STATES, CheckpointFile, SavedStates, checkpoint_index
from planner.runtime.checkpoint.held_shards import HostCopies, held_shards, written_names
from planner.runtime.checkpoint.resume_checks import require_save_folder, require_steps_left
from planner.runtime.checkpoint.stored_states import export_decoder
from planner.runtime.execute.task_executor import TaskExecutor
from planner.runtime.run_options import RunOptions

SAVING = "saving"  # what a rank does while it waits for its files
FILE_TIMEOUT = timedelta(days=1)  # that ranks wait for each other's files: a slow disk should not end a run
SAVE_LOCK = "saving.lock"


@contextmanager
def saving(executor: TaskExecutor, folder: Path) -> Iterator["CheckpointSaver"]:
    """Saver of one rank, whose last write is over when the block is left. Every rank enters it. Raises RunFailed."""
    saver = CheckpointSaver(executor, folder)
    if executor.local.options.save_every is not None:
        saver.copies.copy(saver.own_shards())  # maps the memory of copies before the first step, in place of behind one
    try:
        yield saver
    except BaseException:
        saver.wait()
        raise
    saver.finish()


class CheckpointSaver:
    """Saves the states of a run in a folder."""

    def __init__(self, executor: TaskExecutor, folder: Path) -> None:
        self.executor, self.folder, self.rank = executor, folder, executor.worker.rank
        self.copies = HostCopies()
        self.writing: threading.Thread | None = None
        self.failure: Exception | None = None  # of a write on this rank

    def save(self, steps: int, last: bool) -> None:
        """Saves the state after `steps` steps, on every rank; `last`: none follow. Raises RunFailed as `finish`."""
        self.finish()
        own = self.own_shards()
        shards = own if last else self.copies.copy(own)
        self.writing = threading.Thread(target=self.write, args=(shards, steps), name="checkpoint", daemon=True)
        self.writing.start()

    def own_shards(self) -> dict[str, HeldShard]:
        """What this rank writes, as it is trained. Every rank asks for it the first time."""
        held = held_shards(self.executor)
        return {name: held[name] for name in self.own_names}

    def finish(self) -> None:
        """Waits until what is being written is accepted. Raises RunFailed where this rank could not."""
        self.executor.worker.begin_task(SAVING)
        self.wait()
        self.require_written()

    def wait(self) -> None:
        """Waits until what is being written is accepted, or has failed."""
        if self.writing:
            self.writing.join()

    def require_written(self) -> None:
        """Raises the failure of an earlier write on this rank."""
        if self.failure:
            self.executor.worker.begin_task(SAVING)
            raise self.failure

    def write(self, shards: Mapping[str, HeldShard], steps: int) -> None:
        """In the thread: writes this rank's file, and on rank 0 accepts the checkpoint once all have written theirs."""
        own = self.attempt(write_file, self.folder, self.rank, shards, steps)
        written = self.attempt(self.gather, own)
        if self.rank == 0 and written:
            self.attempt(self.accept, written, steps)
        self.attempt(dist.barrier, self.group)  # when any rank goes on, the checkpoint is accepted, or has failed

    def gather(self, own: WrittenFile | None) -> list[WrittenFile | None]:
        """What each rank has written; None: it could not."""
        return all_gather_messages(own, WrittenFile | None, self.group)

    def accept(self, written: Sequence[WrittenFile | None], steps: int) -> None:
        """On rank 0: accepts the checkpoint, or removes what there is of it where a rank could not write."""
        files = [file for file in written if file]
        if len(files) < len(written):
            shutil.rmtree(self.folder / NEW_STATES, ignore_errors=True)
            return
        local = self.executor.local
        index = accept(self.folder, self.index, steps, files, local.options.retention)
        export_decoder(local.plan, local.options, self.folder, index)

    def attempt(self, do: Callable[..., Any], *args: Any) -> Any:
        """What it returns; None, and a failure to be raised later, where it fails."""
        try:
            return do(*args)
        except Exception as error:
            self.failure = self.failure or error
            return None

    @cached_property
    def group(self) -> dist.ProcessGroup:
        """Group of all ranks, for their threads alone."""
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=FILE_TIMEOUT, group_desc="checkpoint files")
        return group

    @cached_property
    def own_names(self) -> list[str]:
        """Names of the shards that this rank writes. Every rank asks for it at the same time."""
        return written_names(held_shards(self.executor), self.group)

    @cached_property
    def index(self) -> CheckpointFile:
        """The index of a checkpoint of this run, but for what is saved in it."""
        local = self.executor.local
        return checkpoint_index(local.plan, local.options, SavedStates(0, "states-a", {}), local.data_digest)


@contextmanager
def save_lock(worker: Worker, plan: Plan, options: RunOptions) -> Iterator[None]:
    """Locks the folder for the duration of a run that saves, before any rank proceeds, and removes what a killed run
    left half written. Raises InputError, on rank 0, when another run saves there, or has done so since this one was
    checked.
    """
    folder = options.save
    if folder is None:
        yield
        return
    with hold_lock(folder / SAVE_LOCK, "another run saves in this folder") if worker.rank == 0 else nullcontext():
        if worker.rank == 0:
            require_save_folder(options)
            require_steps_left(plan, options)
            shutil.rmtree(folder / NEW_STATES, ignore_errors=True)
        barrier()
        yield
