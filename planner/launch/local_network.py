"""Where a job listens: on one machine on its loopback address alone, so that no other machine reaches its ranks.

Torch's store and gloo ask nobody who they are. A store binds every address of the machine by itself, and gloo the one
that the machine's name resolves to.
"""

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "::1")
INTERFACES = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"  # which both ask before they look for one
WAIT = timedelta(seconds=300)


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
