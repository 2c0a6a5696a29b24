"""Ctrl-C, which a terminal sends to every process of a job: which processes handle it, and which get it forwarded."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

SignalHandler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def handling_interrupts(handler: SignalHandler) -> Iterator[None]:
    """Handle SIGINT with `handler` in this block; only in the main thread, since Python sets signal handlers nowhere
    else.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def ignoring_interrupts() -> AbstractContextManager[None]:
    """A child process that is started in this block ignores SIGINT, and ends with its parent."""
    return handling_interrupts(signal.SIG_IGN)


def forwarding_interrupts(processes: Callable[[], Iterable[int | None]]) -> AbstractContextManager[None]:
    """Forward the first SIGINT to these processes, which may end in their own time; the next one is handled
    as before.
    """
    previous = signal.getsignal(signal.SIGINT)

    def forward(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        for process in processes():
            if process is not None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, signal.SIGINT)

    return handling_interrupts(forward)
