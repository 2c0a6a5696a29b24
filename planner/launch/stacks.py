"""Stacks of ranks that hang: each writes its own to a file on a signal, even while it waits in compiled code."""

import faulthandler
import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

WAIT_S = 2.0  # for the stacks of all ranks
QUIET_S = 0.1  # a stack that has not grown for so long is complete
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
OF_TORCH = "/torch/"
COLLECTIVES = "/torch/distributed/distributed_c10d.py"


class Frame(NamedTuple):
    """One call of a stack."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class RankStacks:
    """The stacks of a launch's ranks, in a folder that lives as long."""

    folder: Path

    def file(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.txt"

    def write_on_signal(self, rank: int) -> None:
        """Of this rank: write the stack of every thread to its file on SIGUSR1."""
        handle = os.open(self.file(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        faulthandler.register(signal.SIGUSR1, handle, all_threads=True)

    def read(self, processes: Mapping[int, int]) -> dict[int, str]:
        """Ask the ranks for their stacks, by process id, and read those that come. One that is stopped is woken."""
        asked = [rank for rank in processes if self.file(rank).exists()]  # the others do not listen yet
        for rank in asked:
            with suppress(ProcessLookupError):
                os.kill(processes[rank], signal.SIGUSR1)
                os.kill(processes[rank], signal.SIGCONT)
        found: dict[int, str] = {}
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            before, found = found, {rank: self.file(rank).read_text(errors="replace") for rank in asked}
            if found == before and all(found.values()):
                break
            time.sleep(QUIET_S)
        return {rank: text for rank, text in found.items() if text}


def main_thread(stack: str) -> list[Frame]:
    """The calls of the main thread, the innermost first: it began first, and is written last."""
    last = stack.strip().split("\n\n")[-1]
    return [Frame(each["file"], int(each["line"]), each["function"]) for each in FRAME.finditer(last)]


def waits_in(stack: str) -> str:
    """What the main thread of a rank is in, and where that was called: `all_reduce at state/gradient_norm.py:72`."""
    frames = main_thread(stack)
    if not frames:
        return ""
    collective = next((each for each in frames if COLLECTIVES in each.file and each.function != "wrapper"), frames[0])
    caller = next((each for each in frames if OF_TORCH not in each.file), frames[0])
    return f"{collective.function} at {'/'.join(caller.file.split('/')[-2:])}:{caller.line}"


def all_stacks(stacks: Mapping[int, str]) -> str:
    """The stacks of all ranks as one text."""
    return "\n\n".join(f"rank {rank}\n{text.strip()}" for rank, text in sorted(stacks.items())) + "\n"
