"""Notices ranks that do not go on, and names the one furthest behind and who waits for it, with the stacks of all.

There is evidence of two kinds. A process that the system has stopped is certain, whatever it does. One that sleeps is
not: the task that it is in must take longer than its limit, no other rank may go on either, and it must neither compute
nor wait for a core, so that a slow machine accuses nobody. Time is what the launcher has counted between its looks: it
stands still while the launcher itself is stopped. A rank writes its stack to a file on a signal, even while it waits in
compiled code.
"""

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError, RanksLost
from planner.files import write_text
from planner.launch.failures import WorkerTraceback
from planner.launch.task_board import BegunTask, ProcessState, process_state, read_entry
from planner.units import duration

NOTHING = BegunTask("")  # that a rank has begun
LOOK_S = 0.5  # between two looks
TICKS_OF_WORK = 3  # of a process between two looks, from which on it computes
WAIT_S = 2.0  # for the stacks of all ranks
QUIET_S = 0.1  # a stack that has not grown for so long is complete
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
OF_TORCH = "/torch/"
COLLECTIVES = "/torch/distributed/distributed_c10d.py"


@dataclass(frozen=True, slots=True)
class HangLimits:
    """How long a rank may not go on."""

    stopped_s: float  # while its process is stopped
    task_s: Callable[[BegunTask, bool], float]  # while it sleeps in a task; whether that is in the first step


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


@dataclass(slots=True)
class RankWatch:
    """What the launcher has seen of one rank."""

    rank: int
    process: int
    entry: Any
    count: int = -1
    state: ProcessState | None = None
    begun: BegunTask = NOTHING
    idle_s: float = 0.0  # since it began its task
    quiet_s: float = 0.0  # since it began its task, or computed
    stopped_s: float = 0.0  # since it was seen stopped

    def look(self, passed_s: float) -> None:
        """Look at it, `passed_s` after the last time."""
        before, self.state = self.state, process_state(self.process)
        self.begun = read_entry(self.entry)
        moved, self.count = self.entry.count != self.count, self.entry.count
        self.idle_s = 0.0 if moved else self.idle_s + passed_s
        self.quiet_s = 0.0 if moved or computes(before, self.state) else self.quiet_s + passed_s
        self.stopped_s = self.stopped_s + passed_s if self.state and self.state.stopped else 0.0

    @property
    def position(self) -> tuple[int, int]:
        """How far it is: step, and place in it."""
        return self.begun.step, self.begun.place


def computes(before: ProcessState | None, now: ProcessState | None) -> bool:
    """Whether a process has computed between two looks, or has waited for a core; true where that is not known."""
    return not before or not now or now.runnable or now.cpu_ticks - before.cpu_ticks >= TICKS_OF_WORK


@dataclass(slots=True)
class HangWatch:
    """Watches the ranks of a launch."""

    limits: HangLimits
    stacks: RankStacks | None = None
    kept: Path | None = None  # file for the stacks of all ranks; None: they are shown with --debug only
    ranks: list[RankWatch] = field(default_factory=list)
    looked: float = 0.0
    first_step: int = 0  # the first that any rank was seen in; 0: none yet

    def add(self, rank: int, process: int, entry: Any) -> None:
        """Watch one rank more."""
        self.ranks.append(RankWatch(rank, process, entry))

    def require_progress(self, running: Sequence[int]) -> None:
        """Look at the ranks that still run. Raises RanksLost naming those that do not go on."""
        now = time.monotonic()
        passed_s, self.looked = min(now - self.looked, 2 * LOOK_S), now
        if passed_s < LOOK_S / 2:
            return
        ranks = [each for each in self.ranks if each.rank in running]
        for each in ranks:
            each.look(passed_s)
        self.first_step = self.first_step or max((each.begun.step for each in ranks), default=0)
        stopped = [each for each in ranks if each.stopped_s >= self.limits.stopped_s]
        behind = stopped or self.asleep(ranks)
        if behind:
            raise self.error(behind, [each for each in ranks if each not in behind])

    def error(self, behind: Sequence[RankWatch], others: Sequence[RankWatch]) -> RanksLost:
        """The error that names those behind, with the stacks of all."""
        stacks = self.stacks.read({each.rank: each.process for each in (*behind, *others)}) if self.stacks else {}
        error = hang_error(behind, others, {rank: waits_in(stack) for rank, stack in stacks.items()})
        if not stacks:
            return error
        error.__cause__ = WorkerTraceback(all_stacks(stacks))
        error.fix = "stacks of all ranks are shown with --debug; or give tasks more time with --hang-after"
        with suppress(InputError):
            if self.kept:
                write_text(self.kept, all_stacks(stacks))
                error.fix = f"stacks of all ranks are in {self.kept}; or give tasks more time with --hang-after"
        return error

    def asleep(self, ranks: Sequence[RankWatch]) -> list[RankWatch]:
        """The ranks furthest behind, where none has gone on for longer than their task may take, and they slept."""
        furthest = min((each.position for each in ranks), default=(0, 0))
        behind = [each for each in ranks if each.position == furthest]
        if len(behind) == len(ranks) > 1:
            return []  # nobody is behind: all wait for something outside
        limit = max((self.limit_of(each) for each in behind), default=0.0)
        hangs = all(each.idle_s >= limit for each in ranks) and all(each.quiet_s >= limit for each in behind)
        return behind if hangs else []

    def limit_of(self, each: RankWatch) -> float:
        return self.limits.task_s(each.begun, each.begun.step <= self.first_step)


def hang_error(behind: Sequence[RankWatch], others: Sequence[RankWatch], calls: Mapping[int, str]) -> RanksLost:
    """Names the ranks that do not go on, their task, and who waits where; `calls`: by rank, what it is in."""
    one, stopped = behind[0], behind[0].stopped_s > 0
    names, task = rank_names(behind), one.begun.task or "before its first task"
    state = "stopped (SIGSTOP)" if stopped else "asleep"
    waiting: dict[str, list[RankWatch]] = {}
    for each in others:
        waiting.setdefault(with_call(each, calls), []).append(each)
    waits = "".join(f"; {rank_names(each)} wait{'s' * (len(each) == 1)} in {name}" for name, each in waiting.items())
    seconds = duration(one.stopped_s if stopped else one.idle_s)
    return RanksLost(
        f"{names} hang{'s' * (len(behind) == 1)}: {state} for {seconds} in {with_call(one, calls)}{waits}",
        where=f"{names}, task {task}" + (f", step {one.begun.step}" if one.begun.step else ""),
        fix="see what holds it (py-spy dump, dmesg); or give tasks more time with --hang-after",
        ranks=[each.rank for each in behind],
    )


def with_call(each: RankWatch, calls: Mapping[int, str]) -> str:
    """The task of a rank, and the call that it is in where that is known."""
    task = each.begun.task or "before its first task"
    return f"{task} ({calls[each.rank]})" if calls.get(each.rank) else task


def rank_names(ranks: Sequence[RankWatch]) -> str:
    """`rank 1`, `ranks 0, 2`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(str(each.rank) for each in ranks)}"


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
