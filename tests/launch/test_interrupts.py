"""The first Ctrl-C is forwarded to all processes that are still alive."""

import os
import signal
import subprocess
import sys

from planner.launch.interrupts import forwarding_interrupts


def test_an_ended_process_does_not_stop_forwarding():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lasting = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1, stderr=-1)
    try:
        lasting.stdout.readline()
        before = signal.getsignal(signal.SIGINT)
        with forwarding_interrupts(lambda: [None, ended.pid, lasting.pid]):
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is before  # the next one is handled as before
        lasting.communicate(timeout=30)
        assert lasting.returncode == -signal.SIGINT
    finally:
        lasting.kill()
        lasting.wait()
