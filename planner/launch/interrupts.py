"""Ctrl-C, which a terminal gives to every process of a job: who hears it, and who is told of it."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


def in_main_thread() -> bool:
    """Only there may Python change what a signal does."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """A child born in here does not hear it, and dies with its parent."""
    if not in_main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_passed_on(processes: Callable[[], Iterable[int | None]]) -> Iterator[None]:
    """The first one goes to these processes, which may end in their own time; the next one does what it did before."""
    if not in_main_thread():
        yield
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        for process in processes():
            if process is not None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, signal.SIGINT)

    before = signal.signal(signal.SIGINT, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
