"""What each rank does: a few numbers in shared memory, written at every task by the rank and read by its launcher."""

import ctypes
import sys
from pathlib import Path
from typing import Any, NamedTuple

TASK_NAME_BYTES = 256
CPU_TIMES = slice(11, 13)  # user and system ticks in /proc/PID/stat, of the fields behind the process's name


class BoardEntry(ctypes.Structure):
    """The line of one rank."""

    _fields_ = (
        ("count", ctypes.c_int64),  # tasks that it has begun: which changes as long as it goes on
        ("step", ctypes.c_int64),  # from 1; 0: not in a step
        ("place", ctypes.c_int64),  # of the task in the order that all ranks share
        ("task", ctypes.c_char * TASK_NAME_BYTES),
    )


class BegunTask(NamedTuple):
    """The task that a rank began last."""

    task: str
    step: int = 0
    place: int = 0


def write_entry(entry: Any, begun: BegunTask) -> None:
    """Write what begins now; wakes nobody."""
    entry.task = begun.task.encode()[: TASK_NAME_BYTES - 1]
    entry.step, entry.place = begun.step, begun.place
    entry.count += 1


def read_entry(entry: Any) -> BegunTask:
    """The task that the entry's rank began last."""
    return BegunTask(entry.task.decode(errors="ignore"), entry.step, entry.place)


class ProcessState(NamedTuple):
    """What the system says of a process: whether it is stopped or computes, and how much it has computed."""

    stopped: bool  # by SIGSTOP or Ctrl-Z
    runnable: bool  # it computes, or waits for a core only
    cpu_ticks: int  # that it has used


def process_state(process: int) -> ProcessState | None:
    """The state of a process; None where the system does not say, or there is none."""
    if sys.platform != "linux":
        return None
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return ProcessState(fields[0] == "T", fields[0] == "R", sum(map(int, fields[CPU_TIMES])))
