"""The first Ctrl-C goes to all processes that there still are."""

import os
import signal
import subprocess
import sys

from planner.launch.interrupts import interrupts_passed_on


def test_a_process_that_has_just_ended_does_not_keep_it_from_others():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lasting = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1, stderr=-1)
    try:
        lasting.stdout.readline()
        before = signal.getsignal(signal.SIGINT)
        with interrupts_passed_on(lambda: [None, ended.pid, lasting.pid]):
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is before  # the next one does what it did
        lasting.communicate(timeout=30)
        assert lasting.returncode == -signal.SIGINT
    finally:
        lasting.kill()
        lasting.wait()
