"""Workers report and return; the failure of one is named, and no process is left behind."""

import gc
import os
import select
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from planner.errors import InputError, RunFailed
from planner.launch.processes import launch
from planner.launch.worker import joined_world, worker_from_environment
from tests.examples import soaked

PATIENCE_S = 300.0  # with what nobody has ended; shorter than ranks here stay by themselves


def greet(worker, word):
    worker.begin_task("greeting")
    worker.report({"word": word, "world": worker.world_size})
    return worker.rank**2, os.getpid()


def die(worker, how):
    """Rank 1 dies in its second task; the others would wait forever."""
    worker.report(os.getpid())
    worker.begin_task("llm/F/0")
    if worker.rank == 1:
        worker.begin_task("llm/F/1")
        how()
    time.sleep(600)


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


def raise_error():
    raise KeyError("lost")


def refuse():
    raise InputError("the plan is for 8 ranks", where="plan.yaml:3:1", fix="ask for fewer")


def leave():
    os._exit(3)


def consequence_then_cause(worker):
    """Rank 0 fails because rank 1 is gone, before rank 1 is seen to fail."""
    if worker.rank == 0:
        raise RuntimeError("gloo: Connection closed by peer [127.0.0.1]")
    time.sleep(0.3)
    raise_error()


def imported(worker):
    """The number of modules that a first optimizer step imports."""
    import torch

    before, weight = {*sys.modules}, torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    return len({*sys.modules} - before)


def loaded(worker, name):
    return name in sys.modules


def collected(worker):
    """The numbers of objects that collections leave alone, and that they look through."""
    with joined_world(worker):
        return gc.get_freeze_count(), len(gc.get_objects())


def collective(worker):
    """Rank 2 dies while the others wait for it in an all-reduce."""
    import torch
    import torch.distributed as dist

    with joined_world(worker):
        number = torch.ones(1)
        dist.all_reduce(number)
        worker.report(number.item())
        worker.begin_task("second")
        if worker.rank == 2:
            kill_myself()
        dist.all_reduce(number)


def absent(worker):
    """Rank 1 does not come to a collective in which rank 0 waits for a second."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _set_pg_timeout

    with joined_world(worker):
        worker.begin_task("llm/F/1", 4, worker.rank)
        if worker.rank == 1:
            signal.pause()
        worker.begin_task("llm/sync", 4, 9)
        _set_pg_timeout(timedelta(seconds=1), dist.group.WORLD)
        dist.all_reduce(torch.ones(1))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def gone(pids):
    """Whether processes end, which is waited for."""
    return all(map(ends, pids))


def ends(pid):
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with open(handle):
        return bool(select.select([handle], [], [], PATIENCE_S)[0])


def test_messages_and_results():
    heard = []
    results = launch(greet, 3, "hi", on_message=lambda rank, message: heard.append((rank, message)))
    assert [square for square, _ in results] == [0, 1, 4]
    assert sorted(rank for rank, _ in heard) == [0, 1, 2]
    assert all(message == {"word": "hi", "world": 3} for _, message in heard)
    assert gone([pid for _, pid in results])


@pytest.mark.parametrize(
    ("how", "says"),
    [(kill_myself, "rank 1 failed: killed by SIGKILL"), (leave, "rank 1 failed: left with exit code 3"),
     (raise_error, "rank 1 failed: KeyError: 'lost'")],
)  # fmt: skip
def test_the_dead_worker_is_named_and_the_others_end(how, says):
    pids = []
    with pytest.raises(RunFailed) as raised:
        launch(die, 3, how, on_message=lambda _, pid: pids.append(pid))
    assert raised.value.message == says
    assert raised.value.where == "rank 1, task llm/F/1"
    assert raised.value.fix
    assert pids and gone(pids)
    if how is raise_error:
        assert "in raise_error" in str(raised.value.__cause__)


def test_an_error_for_the_user_is_unchanged():
    with pytest.raises(InputError) as raised:
        launch(die, 2, refuse)
    assert raised.value.message == "the plan is for 8 ranks"
    assert raised.value.where == "rank 1, task llm/F/1, plan.yaml:3:1"
    assert raised.value.fix == "ask for fewer"


def test_the_cause_is_named_and_not_its_consequence():
    with pytest.raises(RunFailed, match="rank 1 failed: KeyError"):
        launch(consequence_then_cause, 2)


def test_imports_of_a_first_step_are_preloaded():
    """All but a few of some hundreds."""
    assert launch(imported, 1)[0] < 10


def test_what_is_imported_is_not_looked_through_for_garbage():
    kept, looked_through = launch(collected, 1)[0]
    assert kept > 100_000 > 20 * looked_through


def test_a_death_inside_a_collective():
    sums = []
    with pytest.raises(RunFailed) as raised:
        launch(collective, 4, on_message=lambda _, number: sums.append(number))
    assert raised.value.message == "rank 2 failed: killed by SIGKILL"
    assert raised.value.where == "rank 2, task second"
    assert sums == [4.0] * 4


@pytest.mark.slow
def test_who_does_not_come_is_named_and_not_who_waited():
    with pytest.raises(RunFailed) as raised:
        launch(absent, 2)
    assert raised.value.message == "rank 1 does not go on: rank 0 in llm/sync waited for it"
    assert raised.value.where == "rank 1, task llm/F/1"


PARENT = """
import signal
from planner.launch import processes
from test_processes import die
processes.PRELOADED_MODULES.clear()  # seconds of imports that ranks which only wait have no need of
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has programs in the background ignore
if __name__ == "__main__":
    processes.launch(die, 2, int, on_message=lambda rank, pid: print(pid, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    soaked([signal.SIGKILL, signal.SIGINT, signal.SIGTERM], [signal.SIGKILL, signal.SIGINT]),
)
@pytest.mark.every(2)
def test_no_worker_outlives_the_launcher(number, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    here = Path(__file__).parent
    parent = subprocess.Popen(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": f"{here}:{here.parents[1]}"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(alive, pids))
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)  # like a terminal
        else:
            parent.send_signal(number)
        _, errors = parent.communicate(timeout=PATIENCE_S)
    finally:
        parent.kill()
        parent.communicate()
    assert gone(pids)
    assert errors.count("Traceback") == (number == signal.SIGINT)  # the launcher's own, and none of a worker


EARLY = """
from planner.launch import processes
from test_processes import loaded
processes.PRELOADED_MODULES.clear()
if __name__ == "__main__":
    processes.start_fork_server("wave", "test_processes")
    print(processes.launch(loaded, 1, "wave"), processes.launch(loaded, 1, "chunk"))
"""


@pytest.mark.soak
def test_workers_have_what_a_fork_server_imported_that_was_started_early(tmp_path):
    (tmp_path / "parent.py").write_text(EARLY)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}:{here.parents[1]}"}
    command = [sys.executable, tmp_path / "parent.py"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert done.stdout == "[True] [False]\n", done.stderr


def test_the_environment_of_torchrun(monkeypatch):
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    worker = worker_from_environment(threads=3)
    assert (worker.rank, worker.world_size, worker.local_rank, worker.threads) == (5, 8, 1, 3)
    assert worker.device.type == "cpu"
    worker.report("nobody listens")
    monkeypatch.delenv("RANK")
    with pytest.raises(InputError, match="RANK"):
        worker_from_environment()


def join(worker):
    with joined_world(worker):
        return str(worker.device)


def test_a_missing_gpu_is_reported():
    import torch

    missing = torch.cuda.device_count() + 1
    if missing > 2:
        pytest.skip("too many GPUs to ask for one more")
    with pytest.raises(InputError, match="has no GPU"):
        launch(join, missing, kind="cuda")
