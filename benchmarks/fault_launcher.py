"""A launcher that stays warm from one `planner run` to the next, and ranks to which faults can be done.

It reads the arguments of a run as a line of JSON, runs them, and answers, behind what the run wrote to standard error,
with a line: the exit code. Each of its ranks writes its process id to a file `rank N` of a folder, raises an exception
on SIGUSR2 wherever it is, and is slow where the file `slow` says so.
"""

import io
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

FOLDER = "PLANNER_FAULTS"  # environment variable of that folder
SLOW = "slow"
ANSWER = "exit code: "

Place = Literal["first step", "saving", "items"]


class Slowness(NamedTuple):
    """One rank sleeps, once."""

    rank: str  # `rank 1`
    place: Place
    seconds: float


class Injected(Exception):
    """What a rank raises."""


def main() -> None:
    """Runs what standard input asks for, one after the other."""
    from planner.cli import main as planner

    for line in sys.stdin:
        sys.argv = ["planner", *json.loads(line)]
        code: Any = 0
        try:
            with redirect_stdout(io.StringIO()):
                planner()
        except SystemExit as left:
            code = left.code or 0
        print(f"{ANSWER}{code}", file=sys.stderr, flush=True)


def become_a_victim(folder: Path) -> None:
    """Of a rank: at the start of its process."""
    name = multiprocessing.current_process().name
    with suppress(FileNotFoundError):
        be_slow(name, Slowness(*json.loads((folder / SLOW).read_text())))
    signal.signal(signal.SIGUSR2, raise_injected)
    hidden = folder / f".{name}"
    hidden.write_text(str(os.getpid()))
    hidden.rename(folder / name)


def raise_injected(number: int, frame: FrameType | None) -> None:
    raise Injected("a fault was injected")


def be_slow(name: str, slowness: Slowness) -> None:
    """Sleep where the slowness says, if it is that of this rank."""
    from planner.runtime.checkpoint.saving import CheckpointSaver
    from planner.runtime.execute.task_executor import TaskExecutor
    from planner.runtime.state.rank_state import BatchLoader

    if name != slowness.rank:
        return
    if slowness.place == "items":
        BatchLoader.batch = sleeping(BatchLoader.batch, slowness.seconds, calls=10)  # type: ignore[method-assign]
    elif slowness.place == "saving":
        CheckpointSaver.save = sleeping(CheckpointSaver.save, slowness.seconds)  # type: ignore[method-assign]
    else:
        TaskExecutor.forward = sleeping(TaskExecutor.forward, slowness.seconds, calls=4)  # type: ignore[method-assign]


def sleeping(function: Callable[..., Any], seconds: float, calls: int = 1) -> Callable[..., Any]:
    """The function, that sleeps so long in its first calls together."""
    left = calls

    def slow(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            time.sleep(seconds / calls)
        return function(*arguments, **named)

    return slow


if __name__ == "__main__":
    main()
elif multiprocessing.current_process().name.startswith("rank "):
    become_a_victim(Path(os.environ[FOLDER]))
