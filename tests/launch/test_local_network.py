"""Nothing of a job on one machine listens where another machine could reach it; and what ranks say is no pickle."""

import os
import socket
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from planner.errors import RunFailed
from planner.launch.communication import all_gather_messages, barrier, broadcast_message, gather_messages
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.runtime.run_result import RankMemory

LISTENING = "0A"  # in /proc/net/tcp
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}  # 127.0.0.1 and ::1 there


def family_of(ancestor: int) -> list[int]:
    """A process and all that it started, by themselves or through others."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    family = [ancestor]
    for member in family:
        family += [process for process, parent in parents.items() if parent == member]
    return family


def listening_addresses(processes: list[int]) -> set[str]:
    """Local addresses, as hexadecimal digits, of the sockets on which these processes listen."""
    inodes = set()
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").glob("*"):
            target = os.readlink(handle) if handle.is_symlink() else ""
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {line[1].partition(":")[0] for line in lines if line[3] == LISTENING and line[9] in inodes}


def join_and_wait(worker, seen, by_hand):
    """Joins the world, with one group more, until the launcher has looked; `by_hand`: in a store of rank 0, where the
    machine's name says.
    """
    if by_hand:
        os.environ |= {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": by_hand}
        del os.environ["TORCHELASTIC_USE_AGENT_STORE"]
    with joined_world(worker):
        barrier(dist.new_group())
        if worker.rank == 0:
            worker.report("joined")
            while not seen.exists():
                time.sleep(0.01)
        barrier()


@pytest.mark.parametrize("by_hand", [False, True], ids=["launcher", "rank 0"])
def test_every_process_of_a_launch_listens_on_loopback_alone(tmp_path, by_hand):
    found = set()

    def look(rank, message):
        found.update(listening_addresses(family_of(os.getpid())))
        (tmp_path / "seen").touch()

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    launch(join_and_wait, 2, tmp_path / "seen", port if by_hand else "", on_message=look)
    assert found and found <= LOOPBACK


def say(worker):
    """Messages of unlike sizes, in a group of a backend of its own and in the world."""
    own = RankMemory(float(worker.rank), 2.0, 3.0, float("inf"), 10.0**300), "é" * 1000 * worker.rank
    kind = tuple[RankMemory, str]
    with joined_world(worker):
        group = dist.new_group(backend="gloo")
        first = broadcast_message(own if worker.rank == 0 else None, kind | None)
        return own, first, gather_messages(own, kind), all_gather_messages(own, kind, group)


def test_messages_arrive_as_they_were_said():
    said = launch(say, 3)
    every = [own for own, *_ in said]
    assert [gathered for _, _, gathered, _ in said] == [every, [], []]
    assert all(first == every[0] and together == every for _, first, _, together in said)


def say_another_kind(worker):
    with joined_world(worker):
        all_gather_messages({"rank": worker.rank}, dict[str, str])


def test_a_message_of_another_kind_is_refused():
    with pytest.raises(RunFailed, match="another rank says what this one does not understand: Expected `str`"):
        launch(say_another_kind, 2)
