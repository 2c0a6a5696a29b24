"""Finds, among the failures of several workers, the one that caused the others, and reports it with what to do."""

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import PlannerError, RanksLost, RunFailed

PEER_LOST_MESSAGES = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited", "ncclRemoteError",
)  # fmt: skip
ABORTED = signal.SIGABRT.name
WAITED_MESSAGES = ("Timed out waiting", "Watchdog caught collective operation timeout")  # gloo's, NCCL's


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """How one worker ended."""

    rank: int
    task: str  # the last that it began
    text: str
    traceback_text: str = ""  # its traceback, where Python raised
    error: PlannerError | None = None  # what it raised, where that is meant for the user

    @property
    def is_consequence(self) -> bool:
        """Whether it only noticed that another worker was gone, or did not come: libraries may abort for that."""
        aborted = self.silent and ABORTED in self.text
        return aborted or self.waited_in_vain or any(words in self.text for words in PEER_LOST_MESSAGES)

    @property
    def waited_in_vain(self) -> bool:
        """Whether it gave up on another worker that it waited for."""
        return any(words in self.text for words in WAITED_MESSAGES)

    @property
    def silent(self) -> bool:
        """Whether its process ended without an exception in Python."""
        return not self.traceback_text and self.error is None


class WorkerTraceback(Exception):
    """The traceback of another process, as the cause of the error in this one."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def describe_exception(error: BaseException) -> tuple[str, str, PlannerError | None]:
    """An exception as text, as traceback, and as itself where it is meant for the user."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return text, traceback.format_exc(), error if isinstance(error, PlannerError) else None


def failure_at_exit(rank: int, task: str, exitcode: int | None) -> WorkerFailure:
    """The failure of a worker that ended without a message."""
    if exitcode is not None and exitcode < 0:
        return WorkerFailure(rank, task, f"killed by {signal.Signals(-exitcode).name}")
    return WorkerFailure(rank, task, f"left with exit code {exitcode}")


def error_from_failures(failures: Sequence[WorkerFailure]) -> PlannerError:
    """The error to raise: that of the first failure that is not a consequence of another."""
    cause = min(failures, key=lambda failure: failure.is_consequence)
    location = f"rank {cause.rank}, " + (f"task {cause.task}" if cause.task else "before its first task")
    error: PlannerError
    if cause.error is not None:
        error = cause.error
        error.where = f"{location}, {error.where}" if error.where else location
    elif cause.silent:
        message = f"rank {cause.rank} failed: {cause.text}"
        error = RanksLost(message, where=location, fix=suggested_fix(cause), ranks=lost_ranks(failures))
    else:
        error = RunFailed(f"rank {cause.rank} failed: {cause.text}", where=location, fix=suggested_fix(cause))
    if cause.traceback_text:
        error.__cause__ = WorkerTraceback(cause.traceback_text)
    return error


def lost_ranks(failures: Sequence[WorkerFailure]) -> list[int]:
    """The ranks whose processes ended by themselves; where all are consequences, all whose processes ended."""
    silent = [failure for failure in failures if failure.silent]
    return [each.rank for each in silent if not each.is_consequence] or [each.rank for each in silent]


def error_of_absent(rank: int, task: str, waiting: Sequence[WorkerFailure]) -> PlannerError:
    """The error where workers gave up on this rank, which still runs and is furthest behind."""
    doing = f"task {task}" if task else "before its first task"
    waits = " and ".join(f"rank {each.rank} in {each.task or 'its start'}" for each in waiting)
    return RanksLost(
        f"rank {rank} does not go on: {waits} waited for it",
        where=f"rank {rank}, {doing}",
        fix="see what holds it, with py-spy dump, while such a run waits",
        ranks=(rank,),
    )


def suggested_fix(cause: WorkerFailure) -> str:
    """What the user can do about a failure."""
    if "SIGKILL" in cause.text:
        return "if nobody killed it, memory ran out: see dmesg, and give the job fewer tokens per rank"
    if cause.traceback_text:
        return "its traceback is shown with --debug"
    return "what it last wrote to stderr is above"
