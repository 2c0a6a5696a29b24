"""A rank that does not go on is named with its task and who waits for it, and a healthy one never is."""

import math
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import RunFailed
from planner.launch.hangs import LOOK_S, HangLimits, HangWatch, waits_in
from planner.launch.processes import Supervision, launch
from planner.launch.task_board import BegunTask, BoardEntry, ProcessState, process_state, read_entry, write_entry
from tests.launch.test_processes import gone

ASLEEP, WORKING, STOPPED = ProcessState(False, False, 7), ProcessState(False, True, 7), ProcessState(True, False, 7)
LIMITS = HangLimits(8.0, lambda begun, first: math.inf if begun.task == "saving" else 10.0 + 60.0 * first)


class Clock:
    """Ranks whose entries and processes are as a test sets them, looked at every half second."""

    def __init__(self, monkeypatch, count):
        self.now, self.states = 100.0, [ASLEEP] * count
        self.entries = [BoardEntry() for _ in range(count)]
        self.watch = HangWatch(LIMITS)
        for rank, entry in enumerate(self.entries):
            self.watch.add(rank, rank, entry)
        monkeypatch.setattr("planner.launch.hangs.process_state", lambda process: self.states[process])
        monkeypatch.setattr("planner.launch.hangs.time.monotonic", lambda: self.now)
        self.begin(*[BegunTask("first", 1)] * count)
        self.wait(0.5)
        self.begin(*[BegunTask("second", 2)] * count)

    def begin(self, *tasks):
        for entry, task in zip(self.entries, tasks, strict=False):
            write_entry(entry, task)

    def wait(self, seconds):
        for _ in range(round(seconds / LOOK_S)):
            self.now += LOOK_S
            self.watch.require_progress(range(len(self.entries)))


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch, 3)


def test_the_one_furthest_behind_is_named_and_who_waits_for_it(clock):
    clock.begin(BegunTask("llm/sync/step", 2, 9), BegunTask("llm/F/1", 2, 3), BegunTask("llm/sync/step", 2, 9))
    clock.wait(10)
    with pytest.raises(RunFailed) as raised:
        clock.wait(1)
    assert "rank 1 hangs: asleep for" in raised.value.message
    assert "in llm/F/1; ranks 0, 2 wait in llm/sync/step" in raised.value.message
    assert raised.value.where == "rank 1, task llm/F/1, step 2" and "--hang-after" in raised.value.fix


def test_a_stopped_process_is_named_whatever_it_does(clock):
    clock.begin(*[BegunTask("saving")] * 3)
    clock.states[2] = STOPPED
    with pytest.raises(RunFailed, match=r"rank 2 hangs: stopped \(SIGSTOP\) for 8"):
        clock.wait(8)
    assert clock.now < 100 + 9.5


def one_behind(clock, task="llm/F/1", step=2):
    clock.begin(BegunTask("llm/F/2", step, 4), BegunTask(task, step, 3), BegunTask("llm/F/2", step, 4))


def test_a_rank_that_computes_or_waits_for_a_core_is_healthy(clock):
    one_behind(clock)
    clock.states[1] = WORKING
    clock.wait(60)


def test_so_is_one_that_saves(clock):
    one_behind(clock, "saving")
    clock.wait(600)


def test_so_is_one_in_the_first_step_for_some_time_more(clock):
    one_behind(clock, step=1)
    clock.wait(65)
    with pytest.raises(RunFailed, match="rank 1 hangs"):
        clock.wait(6)


def test_so_are_ranks_that_all_wait_for_something_outside(clock):
    clock.begin(*[BegunTask("llm/F/2", 2, 4)] * 3)
    clock.wait(600)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.5, 9)), max_size=30))
def test_nobody_is_named_while_somebody_goes_on(moves):
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch, 3)
        for number, (rank, seconds) in enumerate(moves):
            write_entry(clock.entries[rank], BegunTask(f"llm/F/{number}", 2, number))
            clock.wait(seconds)


def test_time_in_which_the_launcher_was_stopped_does_not_count(clock):
    clock.states = [STOPPED] * 3  # by Ctrl-Z, with the launcher
    clock.now += 3600
    clock.wait(2)
    clock.states = [ASLEEP] * 3
    clock.wait(30)


def test_an_entry_is_what_was_written():
    entry = BoardEntry()
    for begun in (BegunTask("llm[0-3]/F/2/both", 7, 12), BegunTask("é" * 400)):
        write_entry(entry, begun)
        found = read_entry(entry)
        assert begun.task.startswith(found.task) and found[1:] == begun[1:]
    assert entry.count == 2


def stuck(worker, how):
    worker.begin_task("first/task", 1)
    worker.report(os.getpid())
    time.sleep(1)
    worker.begin_task("llm/F/1", 2, 3 if worker.rank else 7)
    if worker.rank and how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


@pytest.mark.slow
@pytest.mark.skipif(process_state(os.getpid()) is None, reason="this system does not say how processes are")
@pytest.mark.parametrize("how", ["stopped", "asleep"])
def test_processes_that_hang_are_named_and_ended(how, tmp_path):
    pids, limits = [], HangLimits(1.0, lambda begun, first: 1.5)
    watched = Supervision(print, limits, tmp_path / "stacks.txt")
    with pytest.raises(RunFailed, match=f"rank 1 hangs: {how}.* rank 0 waits in llm/F/1") as raised:
        launch(stuck, 2, how, on_message=lambda _, pid: pids.append(pid), supervision=watched)
    assert len(pids) == 2 and gone(pids)
    assert raised.value.message.count("(stuck at launch/test_hangs.py:") == 2
    assert str(tmp_path / "stacks.txt") in raised.value.fix
    text = (tmp_path / "stacks.txt").read_text()
    assert text == str(raised.value.__cause__).lstrip("\n") and text.startswith("rank 0\n") and "\nrank 1\n" in text


COLLECTIVE = """Thread 0x1 (most recent call first):
  File "/lib/threading.py", line 4 in wait

Current thread 0x2 (most recent call first):
  File "/site/torch/distributed/distributed_c10d.py", line 3001 in all_reduce
  File "/site/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/src/planner/runtime/state/gradient_norm.py", line 72 in measure
  File "/src/planner/runtime/state/gradient_norm.py", line 59 in clip_gradients
"""


def test_the_collective_that_a_rank_waits_in_is_named_with_its_caller():
    assert waits_in(COLLECTIVE) == "all_reduce at state/gradient_norm.py:72"
    assert waits_in(COLLECTIVE.partition("\n\n")[0]) == "wait at lib/threading.py:4"
    assert waits_in("") == ""
