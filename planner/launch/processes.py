"""Local worker processes. One that dies ends the others and is named; none outlives the launcher.

A worker sends (kind, value) through a pipe: a message for the caller, its result, or its failure. The task that it
begins is written to shared memory, which wakes nobody. The rendezvous store is in the launcher, on a port that the
system chose of the loopback address, so it outlives any worker.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from planner.errors import PlannerError
from planner.launch.failures import (
    WorkerFailure,
    describe_exception,
    error_from_failures,
    error_of_absent,
    failure_at_exit,
)
from planner.launch.hangs import LOOK_S, HangLimits, HangWatch, RankStacks
from planner.launch.interrupts import deferring_interrupts, forwarding_interrupts, ignoring_interrupts
from planner.launch.task_board import BoardEntry, read_entry, write_entry
from planner.launch.worker import LOOPBACK, DeviceKind, local_store, worker_from_environment

EntryPoint = Callable[..., Any]  # (worker, *args) -> result; of a module, so that a new process can import it
OnMessage = Callable[[int, Any], None]  # (rank, message)
Look = Callable[[Sequence[int]], None]  # at these ranks, which run; raises where it finds that they will not end well

CAUSE_WAIT_S = 1.0  # how long the launcher waits for the cause of a failure that looks like a consequence
EXIT_S = 10.0  # how long a worker that sent its result may take to exit
PRELOADED_MODULES = ["planner.launch.preload"]  # modules imported by the fork server, which the first launch starts


@dataclass(frozen=True, slots=True)
class WorkerBody:
    """What every worker runs."""

    entry: EntryPoint
    args: tuple[Any, ...]
    kind: DeviceKind
    threads: int | None
    stacks: RankStacks  # where it writes its own when it is asked to


@dataclass(frozen=True, slots=True)
class Supervision:
    """A launch forwards its first Ctrl-C or SIGTERM, so that workers end in their time; ranks that hang fail."""

    on_interrupt: Callable[[int], None]  # told that first signal
    hang_limits: HangLimits
    stacks: Path | None = None  # file for the stacks of ranks when one hangs; None: --debug shows them
    stops: Callable[[], bool] = lambda: False  # asked twice a second: whether workers are to end as by Ctrl-C
    devices: Sequence[int] = ()  # of this machine, one for each rank; none: the first ones


@dataclass(slots=True)
class ChildProcess:
    """The launcher's record of one worker."""

    rank: int
    process: BaseProcess
    pipe: Connection
    board: Any  # shared memory: the task that the worker began last
    result: Any = None
    finished: bool = False
    failure: WorkerFailure | None = None

    @property
    def task(self) -> str:
        """The last task that it began."""
        return read_entry(self.board).task

    @property
    def running(self) -> bool:
        """Whether it has neither a result nor a failure."""
        return not self.finished and self.failure is None

    def drain_messages(self, on_message: OnMessage) -> None:
        """Handle all messages in the pipe, and record a failure if the worker died without one."""
        dead = not self.process.is_alive()  # checked first: all that it sent before it died is then in the pipe
        while self.running and (received := self.receive_message()):
            self.handle_message(*received, on_message)
        if self.running and (dead or self.pipe.closed):
            self.process.join(EXIT_S)
            self.failure = failure_at_exit(self.rank, self.task, self.process.exitcode)

    def receive_message(self) -> tuple[str, Any] | None:
        """The next message; None where there is none. Closes the pipe where there will be none."""
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            self.pipe.close()
            return None

    def handle_message(self, kind: str, value: Any, on_message: OnMessage) -> None:
        """Handle one message."""
        if kind == "message":
            on_message(self.rank, value)
        elif kind == "result":
            self.result, self.finished = value, True
        else:
            self.failure = WorkerFailure(self.rank, self.task, *value)


def launch(
    entry: EntryPoint,
    world_size: int,
    *args: Any,
    on_message: OnMessage = lambda _rank, _message: None,
    kind: DeviceKind = "cpu",
    threads: int | None = None,
    supervision: Supervision | None = None,
) -> list[Any]:
    """Run `entry(worker, *args)` in `world_size` processes of this machine; returns their results by rank.

    The first worker to fail ends all others, and the error names it and its task. Ctrl-C and SIGTERM kill the workers,
    unless there is a `supervision`.
    """
    start_fork_server(entry.__module__)
    store = local_store()
    world = {
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": store.port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    devices = (supervision and supervision.devices) or range(world_size)
    children: list[ChildProcess] = []
    folder = TemporaryDirectory(prefix="planner-stacks-", ignore_cleanup_errors=True)
    stacks = RankStacks(Path(folder.name))
    body = WorkerBody(entry, args, kind, threads, stacks)
    try:
        with deferring_interrupts():
            for rank in range(world_size):
                identity = {"RANK": rank, "LOCAL_RANK": devices[rank]}
                children.append(start_child(rank, world | identity, body))
        if supervision is None:
            wait_for_children(children, on_message)
        else:
            watch = hang_watch(children, supervision, stacks)
            with forwarding_interrupts(lambda: alive_process_ids(children), supervision.on_interrupt) as remind:
                looks = (lambda _: remind(stop=supervision.stops()), watch.require_progress)
                wait_for_children(children, on_message, looks)
    finally:
        stop_children(children)
        folder.cleanup()
    return [child.result for child in children]


def start_fork_server(*modules: str) -> None:
    """Start the process from which workers are forked, unless it runs. It imports these modules, seconds for torch; who
    calls this early has it do so while the launcher itself imports what it needs.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOADED_MODULES, *modules])
    with ignoring_interrupts():
        forkserver.ensure_running()


def start_child(rank: int, environment: dict[str, object], body: WorkerBody) -> ChildProcess:
    """Start the worker of one rank."""
    context = multiprocessing.get_context("forkserver")
    reader, writer = context.Pipe(duplex=False)
    board = context.RawValue(BoardEntry)
    process = context.Process(target=worker_main, args=(writer, board, environment, body), name=f"rank {rank}")
    process.start()  # forked from the fork server, which ignores interrupts
    writer.close()
    return ChildProcess(rank, process, reader, board)


def hang_watch(children: Sequence[ChildProcess], supervision: Supervision, stacks: RankStacks) -> HangWatch:
    """A watch over all of these workers."""
    watch = HangWatch(supervision.hang_limits, stacks, supervision.stacks)
    for child in children:
        watch.add(child.rank, child.process.pid or 0, child.board)
    return watch


def wait_for_children(children: Sequence[ChildProcess], on_message: OnMessage, looks: Sequence[Look] = ()) -> None:
    """Wait until all have finished or one has failed; of a failure wait briefly for a better explanation, and raise the
    error. `looks` are called meanwhile, at least every half second, with the ranks that still run.
    """
    while any(child.running for child in children):
        handle_events(children, on_message, LOOK_S if looks else None)
        for look in looks:
            look([child.rank for child in children if child.running])
        failures = [child.failure for child in children if child.failure]
        deadline = time.monotonic() + CAUSE_WAIT_S
        while failures and all(failure.is_consequence for failure in failures) and time.monotonic() < deadline:
            handle_events(children, on_message, CAUSE_WAIT_S / 10)
            failures = [child.failure for child in children if child.failure]
        if failures:
            raise error_of_launch(children, failures)


def error_of_launch(children: Sequence[ChildProcess], failures: Sequence[WorkerFailure]) -> PlannerError:
    """The error to raise: where workers only waited in vain, it names the one furthest behind that still runs."""
    running = [child for child in children if child.running]
    if running and all(failure.is_consequence for failure in failures):
        waiting = [failure for failure in failures if failure.waited_in_vain]
        behind = min(running, key=lambda child: read_entry(child.board)[1:])
        if waiting:
            return error_of_absent(behind.rank, behind.task, waiting)
    return error_from_failures(failures)


def alive_process_ids(children: Sequence[ChildProcess]) -> list[int | None]:
    """Process ids of workers that are alive."""
    return [child.process.pid for child in children if child.process.is_alive()]


def handle_events(children: Sequence[ChildProcess], on_message: OnMessage, timeout_s: float | None) -> None:
    """Wait until some worker sends a message or ends, and handle all messages."""
    running = [child for child in children if child.running]
    sources: list[Any] = [source for child in running for source in (child.pipe, child.process.sentinel)]
    wait(sources, timeout_s)
    for child in running:
        child.drain_messages(on_message)


def stop_children(children: Sequence[ChildProcess]) -> None:
    """Leave no process behind: workers with a result may exit by themselves, the others are killed."""
    for child in children:
        if not child.finished:
            child.process.kill()
    for child in children:
        child.process.join(EXIT_S)
        child.process.kill()
        child.process.join()
        child.pipe.close()


def worker_main(pipe: Connection, board: Any, environment: dict[str, object], body: WorkerBody) -> None:
    """The main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # but for where it listens: the launcher may remind one that has ended
    threading.Thread(target=die_with_parent, daemon=True).start()
    os.environ.update({name: str(value) for name, value in environment.items()})

    def send(kind: str, value: Any) -> None:
        if kind == "task":
            write_entry(board, value)
        else:
            pipe.send((kind, value))

    worker = worker_from_environment(body.kind, body.threads, send)
    body.stacks.write_on_signal(worker.rank)
    try:
        worker.send("result", body.entry(worker, *body.args))
    except BaseException as error:
        worker.send("failure", describe_exception(error))
        raise SystemExit(1) from None


def die_with_parent() -> None:
    """End this process when the launcher ends, however that happens."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
