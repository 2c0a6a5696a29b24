"""Ctrl-C, which a terminal gives to every process of a job: who hears it, and who is told of it."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def interrupts(handler: Handler) -> Iterator[None]:
    """Are handled so within; only in the main thread, since Python changes what a signal does nowhere else."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupts_ignored() -> AbstractContextManager[None]:
    """A child born in here does not hear it, and dies with its parent."""
    return interrupts(signal.SIG_IGN)


def interrupts_passed_on(processes: Callable[[], Iterable[int | None]]) -> AbstractContextManager[None]:
    """The first one goes to these processes, which may end in their own time; the next one does what it did before."""
    before = signal.getsignal(signal.SIGINT)

    def pass_on(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        for process in processes():
            if process is not None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, signal.SIGINT)

    return interrupts(pass_on)
