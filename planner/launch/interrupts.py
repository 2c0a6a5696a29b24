"""Signals that ask a job to end: Ctrl-C, which a terminal sends to every process of it, SIGTERM of a scheduler (Slurm,
Kubernetes, a spot machine), and SIGHUP of a terminal that is closed. Which processes handle them, and which get them
forwarded.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

SignalHandler = Callable[[int, FrameType | None], None] | signal.Handlers

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handled_signals() -> list[signal.Signals]:
    """Ctrl-C, and what else this process does not ignore, as SIGHUP under nohup, or both in a launcher's worker."""
    return [each for each in STOP_SIGNALS if each == signal.SIGINT or signal.getsignal(each) != signal.SIG_IGN]


@contextmanager
def handling_interrupts(handler: SignalHandler) -> Iterator[None]:
    """Handle these signals with `handler` in this block, in the main thread: Python sets handlers nowhere else."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in handled_signals()}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def ignoring_interrupts() -> AbstractContextManager[None]:
    """A child process that is started in this block ignores these signals, and ends with its parent."""
    return handling_interrupts(signal.SIG_IGN)


@contextmanager
def deferring_interrupts() -> Iterator[None]:
    """A signal that comes in this block is handled behind it: nothing is left half done, and no signal is lost."""
    came: list[int] = []
    with handling_interrupts(lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


@contextmanager
def forwarding_interrupts(
    processes: Callable[[], Iterable[int | None]], on_first: Callable[[int], None] = lambda number: None
) -> Iterator[Callable[..., None]]:
    """Forward the first signal as SIGINT to these processes, which may end in their own time, and tell `on_first` which
    it was; the next one is handled as before. The yielded function forwards it again, if there was one, or with `stop`:
    a process that has just started does not listen yet.
    """
    previous = {number: signal.getsignal(number) for number in handled_signals()}
    came = False

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal came
        for each, before in previous.items():
            signal.signal(each, before)
        came = True
        on_first(number)
        send()

    def send() -> None:
        for process in processes():
            if process is not None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, signal.SIGINT)

    def remind(stop: bool = False) -> None:
        if came or stop:
            send()

    with handling_interrupts(forward):
        yield remind
