"""From the deaths of several workers to the one that caused the others, said so that a person can act on it."""

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import PlannerError, RunFailed

ECHOES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "remote process exited",
    "ncclRemoteError",
)


@dataclass(frozen=True, slots=True)
class Failure:
    """How one worker ended."""

    rank: int
    task: str  # the last it began
    text: str
    trace: str = ""  # its traceback, when Python saw the end
    error: PlannerError | None = None  # what it raised, when that was for a person

    @property
    def echo(self) -> bool:
        """Whether it only noticed that another was gone."""
        return any(words in self.text for words in ECHOES)


class WorkerTraceback(Exception):
    """The traceback of another process, as the cause of the error here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def describe(error: BaseException) -> tuple[str, str, PlannerError | None]:
    """An exception as text, as traceback, and as itself when it is for a person."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return text, traceback.format_exc(), error if isinstance(error, PlannerError) else None


def death(rank: int, task: str, exitcode: int | None) -> Failure:
    """A worker that ended without a word."""
    if exitcode is not None and exitcode < 0:
        return Failure(rank, task, f"killed by {signal.Signals(-exitcode).name}")
    return Failure(rank, task, f"left with exit code {exitcode}")


def failed(failures: Sequence[Failure]) -> PlannerError:
    """The error to raise: of the first failure that is no echo."""
    cause = min(failures, key=lambda failure: failure.echo)
    place = f"rank {cause.rank}, " + (f"task {cause.task}" if cause.task else "before its first task")
    error: PlannerError
    if cause.error is not None:
        error = cause.error
        error.where = f"{place}, {error.where}" if error.where else place
    else:
        error = RunFailed(f"rank {cause.rank} failed: {cause.text}", where=place, fix=advice(cause))
    if cause.trace:
        error.__cause__ = WorkerTraceback(cause.trace)
    return error


def advice(cause: Failure) -> str:
    if "SIGKILL" in cause.text:
        return "if nobody killed it, memory ran out: see dmesg, and give the job fewer tokens per rank"
    if cause.trace:
        return "its traceback is shown with --debug"
    return "what it last wrote to stderr is above"
