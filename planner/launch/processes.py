"""Local worker processes. One that dies ends the others and is named; none outlives the launcher.

A worker sends (kind, value) through a pipe: a message for the caller, its result, or its failure. The name of the task
that it begins is written to shared memory, which wakes nobody. The rendezvous store is in the launcher, on a port that
the system chose, so it outlives any worker.
"""

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from planner.launch.failures import Failure, death, describe, failed
from planner.launch.interrupts import interrupts_ignored, interrupts_passed_on
from planner.launch.worker import Kind, from_environment

Entry = Callable[..., Any]  # (worker, *args) -> result; a function of a module, so that a new process can import it
OnMessage = Callable[[int, Any], None]  # (rank, message)

ECHO_S = 1.0  # how long the launcher waits for the cause of a failure that looks like a consequence
BOARD_BYTES = 256
EXIT_S = 10.0  # how long a worker that sent its result may take to exit
PRELOADED = ["planner.launch.preload"]  # modules imported by the fork server, which the first launch starts


@dataclass(frozen=True, slots=True)
class Body:
    """What every worker runs."""

    entry: Entry
    args: tuple[Any, ...]
    kind: Kind
    threads: int | None


@dataclass(slots=True)
class Child:
    """The launcher's record of one worker."""

    rank: int
    process: BaseProcess
    pipe: Connection
    board: Any  # shared memory: the task that the worker began last
    result: Any = None
    finished: bool = False
    failure: Failure | None = None

    @property
    def task(self) -> str:
        """The last task that it began."""
        return str(self.board.value.decode(errors="ignore"))

    @property
    def running(self) -> bool:
        """Whether it has neither a result nor a failure."""
        return not self.finished and self.failure is None

    def take(self, on_message: OnMessage) -> None:
        """Handle all messages in the pipe, and record a failure if the worker died without one."""
        dead = not self.process.is_alive()  # checked first: all that it sent before it died is then in the pipe
        while self.running and (received := self.receive()):
            self.hear(*received, on_message)
        if self.running and (dead or self.pipe.closed):
            self.process.join(EXIT_S)
            self.failure = death(self.rank, self.task, self.process.exitcode)

    def receive(self) -> tuple[str, Any] | None:
        """The next message; None where there is none. Closes the pipe where there will be none."""
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            self.pipe.close()
            return None

    def hear(self, kind: str, value: Any, on_message: OnMessage) -> None:
        """Handle one message."""
        if kind == "message":
            on_message(self.rank, value)
        elif kind == "result":
            self.result, self.finished = value, True
        else:
            self.failure = Failure(self.rank, self.task, *value)


def launch(
    entry: Entry,
    world_size: int,
    *args: Any,
    on_message: OnMessage = lambda _rank, _message: None,
    kind: Kind = "cpu",
    threads: int | None = None,
    heed: bool = False,
) -> list[Any]:
    """Run `entry(worker, *args)` in `world_size` processes of this machine; returns their results by rank.

    The first worker to fail ends all others, and the error names it and its task. Ctrl-C kills the workers; with
    `graceful_interrupt` the first one is forwarded to them, and they end with a result in their own time.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    world = {
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": store.port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    children: list[Child] = []
    try:
        for rank in range(world_size):
            children.append(start_child(rank, world, Body(entry, args, kind, threads)))
        with interrupts_passed_on(lambda: living(children)) if heed else nullcontext():
            watch(children, on_message)
    finally:
        stop(children)
    return [child.result for child in children]


def start_child(rank: int, world: dict[str, object], body: Body) -> Child:
    """Start the worker of one rank."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, body.entry.__module__])
    reader, writer = context.Pipe(duplex=False)
    environment = {**world, "RANK": rank, "LOCAL_RANK": rank}
    board = context.RawArray("c", BOARD_BYTES)
    process = context.Process(target=child_main, args=(writer, board, environment, body), name=f"rank {rank}")
    with interrupts_ignored():
        process.start()
    writer.close()
    return Child(rank, process, reader, board)


def watch(children: Sequence[Child], on_message: OnMessage) -> None:
    """Wait until all have finished or one has failed; then wait briefly for a better explanation, and raise
    the error.
    """
    while any(child.running for child in children):
        listen(children, on_message, None)
        failures = [child.failure for child in children if child.failure]
        deadline = time.monotonic() + ECHO_S
        while failures and all(failure.echo for failure in failures) and time.monotonic() < deadline:
            listen(children, on_message, ECHO_S / 10)
            failures = [child.failure for child in children if child.failure]
        if failures:
            raise failed(failures)


def living(children: Sequence[Child]) -> list[int | None]:
    """Process ids of workers that are alive."""
    return [child.process.pid for child in children if child.process.is_alive()]


def listen(children: Sequence[Child], on_message: OnMessage, timeout_s: float | None) -> None:
    """Wait until some worker sends a message or ends, and handle all messages."""
    running = [child for child in children if child.running]
    sources: list[Any] = [source for child in running for source in (child.pipe, child.process.sentinel)]
    wait(sources, timeout_s)
    for child in running:
        child.take(on_message)


def stop(children: Sequence[Child]) -> None:
    """Leave no process behind: workers with a result may exit by themselves, the others are killed."""
    for child in children:
        if not child.finished:
            child.process.kill()
    for child in children:
        child.process.join(EXIT_S)
        child.process.kill()
        child.process.join()
        child.pipe.close()


def child_main(pipe: Connection, board: Any, environment: dict[str, object], body: Body) -> None:
    """The main function of a worker process."""
    threading.Thread(target=die_with_parent, daemon=True).start()
    os.environ.update({name: str(value) for name, value in environment.items()})
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())  # the machine's name need not resolve to an address

    def send(kind: str, value: Any) -> None:
        if kind == "task":
            board.value = value.encode()[: BOARD_BYTES - 1]
        else:
            pipe.send((kind, value))

    worker = from_environment(body.kind, body.threads, send)
    try:
        worker.send("result", body.entry(worker, *body.args))
    except BaseException as error:
        worker.send("failure", describe(error))
        raise SystemExit(1) from None


def die_with_parent() -> None:
    """End this process when the launcher ends, however that happens."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def loopback() -> str:
    """The name of the loopback interface: `lo`, or `lo0`."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
