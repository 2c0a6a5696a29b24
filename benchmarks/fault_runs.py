"""One fault done to a run: how it ended, what it left behind, and whether what is resumed is the uninterrupted run."""

import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.fault_launcher import ANSWER, FOLDER, SLOW, Slowness

FaultKind = Literal["kill", "stop", "terminate", "interrupt", "exception", "full disk", "launcher death"]

STEPS, SAVE_EVERY = 24, 3
MOMENTS = 14  # steps, behind one of which the fault comes
PATIENCE_S = 1200.0  # until a run counts as left hanging: machines are shared, and none takes a tenth of it alone
GONE_S = 20.0  # until a process that should be gone counts as an orphan
POLL_S = 0.01
EXIT_CODES: dict[FaultKind, int] = {"kill": 5, "stop": 5, "terminate": 143, "interrupt": 130, "exception": 5,
                                    "full disk": 5, "launcher death": -signal.SIGKILL}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a kind, at a moment and a rank that its seed draws."""

    kind: FaultKind
    ranks: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.ranks} ranks, {self.seed}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run, and of the one that resumed it."""

    code: int | None  # exit code; None: left hanging
    errors: str  # what it printed
    named_s: float | None  # from the fault until an error was printed; None: there was none
    ended_s: float  # from the fault to the end
    orphans: int
    same_bits: bool  # whether the resumed run ends with the files of the uninterrupted one
    finished_first: bool  # whether the run ended well before the fault had an effect
    rank: int  # to which the fault was done

    def wrong(self, fault: Fault) -> list[str]:
        """What should be otherwise."""
        found = [] if self.same_bits else ["other bits"]
        found += ["orphans"] if self.orphans else []
        if self.code is None:
            return [*found, "left hanging"]
        if self.finished_first:
            return found
        if self.code != EXIT_CODES[fault.kind]:
            found.append(f"exit code {self.code}")
        if fault.kind in ("kill", "stop", "exception") and f"rank {self.rank} " not in self.errors.partition("\n")[0]:
            found.append(f"rank {self.rank} is not named")
        return found


@dataclass(slots=True)
class Launcher:
    """A warm launcher process, and where its ranks write their process ids."""

    folder: Path
    process: subprocess.Popen[str]
    answers: "queue.SimpleQueue[int]" = field(default_factory=queue.SimpleQueue)
    errors: list[tuple[float, str]] = field(default_factory=list)  # lines, and when they came
    reader: threading.Thread = field(default_factory=threading.Thread)

    def begin(self, arguments: list[str]) -> None:
        """Begin a run."""
        for file in self.folder.glob("rank *"):
            file.unlink()
        self.errors.clear()
        assert self.process.stdin
        self.process.stdin.write(json.dumps(["run", *arguments, "--no-ledger"]) + "\n")
        self.process.stdin.flush()

    def code(self, within_s: float) -> int | None:
        """The exit code of the run; minus the signal by which the launcher died; None: neither in this time."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with suppress(queue.Empty):
                return self.answers.get(timeout=POLL_S)
            if self.process.poll() is not None:
                return self.process.returncode
        return None

    def rank_processes(self) -> dict[int, int]:
        """Process id by rank, of those that have started."""
        return {int(file.name.split()[1]): int(file.read_text()) for file in self.folder.glob("rank *")}


@contextmanager
def launchers(folder: Path) -> Iterator[Callable[[], Launcher]]:
    """A function that returns a launcher that lives; none outlives the block."""
    started: list[Launcher] = []

    def living() -> Launcher:
        if not started or started[-1].process.poll() is not None:
            started.append(start_launcher(folder))
        return started[-1]

    try:
        yield living
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()
            kill_all(filter(lives, each.rank_processes().values()))
            if each.process.stdin:
                each.process.stdin.close()
            each.reader.join(GONE_S)


def start_launcher(folder: Path) -> Launcher:
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fault_launcher"],
        env={**os.environ, FOLDER: str(folder), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    started = Launcher(folder, process)
    started.reader = threading.Thread(target=read_errors, args=(started,), daemon=True)
    started.reader.start()
    return started


def read_errors(launcher: Launcher) -> None:
    assert launcher.process.stderr
    with launcher.process.stderr as lines:
        for line in lines:
            if line.startswith(ANSWER):
                launcher.answers.put(int(line.removeprefix(ANSWER)))
            else:
                launcher.errors.append((time.monotonic(), line))


def uninterrupted(living: Callable[[], Launcher], plan: Path, folder: Path) -> Mapping[str, bytes]:
    """The files of a run to which nothing is done."""
    launcher = living()
    launcher.begin(arguments(plan, folder))
    if launcher.code(PATIENCE_S) != 0:
        raise RuntimeError("".join(line for _, line in launcher.errors))
    return tensors_of(folder)


def do_fault(
    living: Callable[[], Launcher], fault: Fault, plan: Path, folder: Path, whole: Mapping[str, bytes]
) -> Outcome:
    """Do this fault to a run of the plan that saves in `folder`, then resume it; `whole`: files of the uninterrupted
    run.
    """
    drawn = random.Random(f"{fault.kind} {fault.ranks} {fault.seed}")
    rank, step, delay = drawn.randrange(fault.ranks), drawn.randrange(MOMENTS), drawn.uniform(0, 0.3)
    launcher = living()
    launcher.begin(arguments(plan, folder))
    await_step(launcher, folder, fault.ranks, step)
    time.sleep(delay)
    processes, begun = launcher.rank_processes(), time.monotonic()
    injure(fault.kind, launcher, processes[0 if fault.kind == "full disk" else rank], drawn)
    code = launcher.code(PATIENCE_S)
    ended, errors = time.monotonic(), [*launcher.errors]
    orphans = living_of(processes.values(), GONE_S)
    kill_all(orphans if code is not None else [*processes.values(), launcher.process.pid])
    resumed = living()
    resumed.begin([*arguments(plan, folder), "--resume", str(folder / "saved")])
    ends = (0, 2) if code == 0 else (0,)  # 2: no steps are left of a run that ended before the fault
    same = resumed.code(PATIENCE_S) in ends and tensors_of(folder) == whole
    return Outcome(
        code=code,
        errors="".join(line for _, line in errors if not line.startswith("interrupted")),
        named_s=errors[0][0] - begun if errors else None,
        ended_s=ended - begun,
        orphans=len(orphans),
        same_bits=same,
        finished_first=code == 0,
        rank=rank,
    )


def accuses(living: Callable[[], Launcher], slowness: Slowness, plan: Path, folder: Path) -> str:
    """What a run with a slow rank says, though all are healthy; empty: it ends well. Any task may take a second."""
    launcher = living()
    note = launcher.folder / SLOW
    note.write_text(json.dumps(slowness))
    launcher.begin([*arguments(plan, folder), "--hang-after", "1s"])
    code = launcher.code(PATIENCE_S)
    note.unlink()
    return "" if code == 0 else f"exit code {code}\n" + "".join(line for _, line in launcher.errors)


def arguments(plan: Path, folder: Path) -> list[str]:
    saves = ["--save", str(folder / "saved"), "--save-every", str(SAVE_EVERY)]
    return [str(plan), "--steps", str(STEPS), "--metrics", str(folder / "metrics.jsonl"), *saves]


def await_step(launcher: Launcher, folder: Path, ranks: int, step: int) -> None:
    """Wait until all ranks have started, and so many steps are done; or until the run ends."""
    deadline, metrics = time.monotonic() + PATIENCE_S, folder / "metrics.jsonl"
    while time.monotonic() < deadline and launcher.process.poll() is None and not launcher.answers.qsize():
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if len(launcher.rank_processes()) == ranks and done >= step:
            return
        time.sleep(POLL_S)
    raise RuntimeError("the run does not begin: " + "".join(line for _, line in launcher.errors))


def injure(kind: FaultKind, launcher: Launcher, process: int, drawn: random.Random) -> None:
    """Do it to this rank's process, or to the launcher."""
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "exception": signal.SIGUSR2}
    to_launcher = {"terminate": signal.SIGTERM, "interrupt": signal.SIGINT, "launcher death": signal.SIGKILL}
    with suppress(ProcessLookupError):  # the run has just ended
        if kind in signals:
            os.kill(process, signals[kind])
        elif kind in to_launcher:
            launcher.process.send_signal(to_launcher[kind])
        else:
            limit = drawn.randrange(8_000, 60_000)  # bytes of a file, behind which writes fail
            resource.prlimit(process, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def living_of(processes: Iterable[int], within_s: float) -> list[int]:
    """Those that are still there after this time."""
    left, deadline = [*processes], time.monotonic() + within_s
    while (left := [each for each in left if lives(each)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_all(processes: Iterable[int]) -> None:
    for each in processes:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def tensors_of(folder: Path) -> Mapping[str, bytes]:
    """The tensors of the checkpoint in the folder, by file."""
    from planner.runtime.checkpoint.checkpoint_index import read_index

    saved = folder / "saved"
    states = saved / read_index(saved).states
    return {file.name: file.read_bytes() for file in sorted(states.iterdir())}
