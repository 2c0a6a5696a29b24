"""One rank of a job: its identity, what it reports, and how it joins the others. It is the same under `launch` and
`torchrun`.

On one machine a job listens on the loopback address alone, so that no other machine reaches its ranks: torch's store
and gloo ask nobody who they are. A store binds every address of the machine by itself, and gloo the one that the
machine's name resolves to.
"""

import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from planner.errors import InputError
from planner.launch.task_board import BegunTask

if TYPE_CHECKING:
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "::1")
INTERFACES = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"  # which both ask before they look for one
WAIT = timedelta(seconds=300)
DeviceKind = Literal["cpu", "cuda"]
# torch's CUDA allocator, which reads it at the first allocation. Micro-batches of unlike lengths leave it with blocks
# that fit no other: of 61 GiB that it had reserved on an H200 only 44 were in use at most (measured, 2026-11-27).
ALLOCATOR_SETTINGS = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
GROWING_SEGMENTS = "expandable_segments:True"
_timeout = timedelta(seconds=600)  # of the world that this process joined: there is one, and torch has no public getter


def local_store(port: int = 0, timeout: timedelta = WAIT) -> "TCPStore":
    """A store in this process that listens on the loopback address; `port`: 0 for one that the system chooses."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((LOOPBACK, port), backlog=socket.SOMAXCONN)
    port, handle = listener.getsockname()[1], listener.detach()  # which the store closes
    return TCPStore(LOOPBACK, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=handle)


def joined_store(rank: int, world_size: int, timeout: timedelta) -> "TCPStore":
    """The store in which a world meets, as the environment says. On one machine, gloo and NCCL listen on its loopback
    interface from now on, unless they were told another.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    begins = rank == 0 and not agent_has_store()
    if host in LOOPBACK_NAMES or os.environ.get("LOCAL_WORLD_SIZE") == str(world_size):
        for name in INTERFACES:
            os.environ.setdefault(name, loopback_interface())
        if begins:
            return local_store(port, timeout)
        host = host if agent_has_store() else LOOPBACK
    return TCPStore(host, port, world_size, is_master=begins, timeout=timeout)


def agent_has_store() -> bool:
    """Whether the launcher keeps the store, rather than rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def loopback_interface() -> str:
    """The name of the loopback interface: `lo`, or `lo0`."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


@dataclass(frozen=True, slots=True)
class Worker:
    """The argument of what a rank runs. A report is one of a few plain values, which the launcher of the job reads."""

    rank: int
    world_size: int
    local_rank: int
    kind: DeviceKind
    threads: int  # of torch, for compute on the CPU
    send: Callable[[str, Any], None]

    def report(self, message: Any) -> None:
        """Send anything picklable to the `on_message` of the launch."""
        self.send("message", message)

    def begin_task(self, task: str, step: int = 0, place: int = 0) -> None:
        """Record which task begins, in which step, and at which place of the order that all ranks share."""
        self.send("task", BegunTask(task, step, place))

    @property
    def device(self) -> "torch.device":
        """The device of this rank."""
        import torch

        return torch.device("cuda", self.local_rank) if self.kind == "cuda" else torch.device("cpu")


def worker_from_environment(
    kind: DeviceKind = "cpu", threads: int | None = None, send: Callable[[str, Any], None] = lambda _kind, _value: None
) -> Worker:
    """The worker that RANK, WORLD_SIZE and LOCAL_RANK describe, as torchrun sets them. Raises InputError."""
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        raise InputError("RANK and WORLD_SIZE are not set", fix="start it with torchrun") from None
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    return Worker(rank, world_size, local_rank, kind, threads or max(1, usable_cores() // local_world), send)


def usable_cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def world_timeout() -> timedelta:
    """How long ranks wait for each other in a collective."""
    return _timeout


@contextmanager
def joined_world(worker: Worker, timeout_s: float = 600.0) -> Iterator[None]:
    """Be a member of the world in this block: with gloo between CPUs, NCCL between GPUs. Raises InputError for a rank
    without a GPU.

    After a restart, a store that the agent keeps gets a new prefix: gloo would otherwise read the addresses of dead
    processes. A store that rank 0 made for this world alone needs none, and gets none: agents count their own restarts.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    from planner.launch.communication.collectives import barrier

    if worker.kind == "cuda":
        if worker.local_rank >= torch.cuda.device_count():
            raise InputError(
                f"local rank {worker.local_rank} has no GPU: this machine shows {torch.cuda.device_count()}",
                fix="run fewer ranks per machine, or on the CPU",
            )
        if not any(name in os.environ for name in ALLOCATOR_SETTINGS):
            os.environ[ALLOCATOR_SETTINGS[0]] = GROWING_SEGMENTS
        torch.cuda.set_device(worker.local_rank)
    torch.set_num_threads(worker.threads)
    global _timeout
    timeout = _timeout = timedelta(seconds=timeout_s)
    store = joined_store(worker.rank, worker.world_size, timeout)
    generation = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if agent_has_store() else "0"
    dist.init_process_group(
        "nccl" if worker.kind == "cuda" else "gloo",
        store=PrefixStore(f"planner/generation-{generation}", store),
        rank=worker.rank,
        world_size=worker.world_size,
        timeout=timeout,
    )
    keep_from_collector()
    yield  # after an exception other ranks are gone or stuck, and an orderly exit would wait for them
    barrier()  # gloo may abort in a rank whose peer closes the connection while it still listens
    dist.destroy_process_group()


def keep_from_collector() -> None:
    """Takes what is imported by now, a third of a million objects, mostly torch's, out of garbage collections.

    Each rank would look through them at a moment of its own, for a quarter of a second (measured, 2 cores), while the
    others wait (MegaScale, arXiv:2402.15627, on stragglers).
    """
    gc.freeze()
