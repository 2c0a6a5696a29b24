"""One run at a time saves in a folder."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from planner.files import hold_lock
from planner.launch import Worker
from planner.launch.communication import barrier
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.checkpoint_index import NEW_STATES
from planner.runtime.checkpoint.resume_checks import require_save_folder, require_steps_left
from planner.runtime.run_options import RunOptions

SAVE_LOCK = "saving.lock"


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
