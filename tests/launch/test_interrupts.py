"""The first Ctrl-C is forwarded to all processes that are still alive."""

import os
import signal
import subprocess
import sys

from planner.launch.interrupts import deferring_interrupts, forwarding_interrupts, handling_interrupts


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
        lasting.communicate()
        assert lasting.returncode == -signal.SIGINT
    finally:
        lasting.kill()
        lasting.wait()


LATE = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(flush=True)
input()
signal.signal(signal.SIGINT, signal.SIG_DFL)
print(flush=True)
input()
"""


def test_a_process_that_did_not_listen_yet_is_reminded():
    late = subprocess.Popen([sys.executable, "-c", LATE], stdin=-1, stdout=-1, stderr=-1)
    try:
        late.stdout.readline()
        with forwarding_interrupts(lambda: [late.pid]) as remind:
            remind()  # of nothing yet
            os.kill(os.getpid(), signal.SIGINT)
            late.stdin.write(b"\n")
            late.stdin.flush()
            late.stdout.readline()
            assert late.poll() is None
            remind()
        late.communicate()
        assert late.returncode == -signal.SIGINT
    finally:
        late.kill()
        late.wait()


def test_a_signal_that_is_deferred_is_handled_behind_the_block():
    heard = []
    with handling_interrupts(lambda number, _: heard.append(number)):
        with deferring_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert not heard
        assert sorted(heard) == [signal.SIGINT, signal.SIGTERM]
