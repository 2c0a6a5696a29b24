"""Messages from rank to rank whose shapes both ends know before: sent without waiting, received in the sender's order.

One channel leads from a rank to another. Its messages arrive in the order in which they were sent, whatever the backend
thinks of tags; the receiver asks for one message more than it needs, so that it travels while it computes.
"""

from collections import deque
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor

AHEAD = 1  # messages of a channel that are asked for before their turn

Pair = tuple[int, int]  # from, to


class Channels:
    """This rank's ends of all channels. Every rank makes them with the same `pairs`, at load."""

    def __init__(self, pairs: Iterable[Pair], device: torch.device) -> None:
        self.rank, self.device = dist.get_rank(), device
        # NCCL runs the messages of a communicator one after the other: each channel has its own. Gloo needs none.
        apart = device.type == "cuda"
        self.groups = {pair: dist.new_group(sorted(pair)) if apart else None for pair in sorted(set(pairs))}
        self.sent: list[tuple[dist.Work, Tensor]] = []
        self.due: dict[int, deque[tuple[str, Callable[[], Tensor]]]] = {}
        self.coming: dict[int, deque[tuple[str, Tensor, dist.Work]]] = {}

    def connect(self) -> None:
        """A byte over each channel, in one order on all ranks: NCCL makes a communicator at its first message, and both
        ends wait for that.
        """
        byte = torch.zeros(1, dtype=torch.uint8, device=self.device)
        for (source, target), group in self.groups.items():
            if self.rank == source:
                dist.send(byte, target, group=group)
            elif self.rank == target:
                dist.recv(byte, source, group=group)

    def expect(self, source: int, messages: Iterable[tuple[str, Callable[[], Tensor]]]) -> None:
        """What a rank will send in this step, in its order: each message's name, and what makes memory for it."""
        self.due[source], self.coming[source] = deque(messages), deque()

    def send(self, target: int, x: Tensor) -> None:
        x = x.contiguous()
        work = dist.isend(x, target, group=self.groups[self.rank, target])
        assert work is not None, "this rank is in the group"
        self.sent.append((work, x))
        self.sent = [(work, x) for work, x in self.sent if not work.is_completed()]

    def receive(self, source: int, name: str) -> Tensor:
        """The message of this name, and ask for those behind it."""
        coming = self.coming[source]
        while name not in [each for each, _, _ in coming]:
            self.ask(source)
        for _ in range(AHEAD):
            if len(coming) <= AHEAD and self.due[source]:
                self.ask(source)
        place = [each for each, _, _ in coming].index(name)
        _, x, work = coming[place]
        del coming[place]
        work.wait()
        return x

    def ask(self, source: int) -> None:
        name, memory = self.due[source].popleft()
        x = memory()
        work = dist.irecv(x, source, group=self.groups[source, self.rank])
        assert work is not None, "this rank is in the group"
        self.coming[source].append((name, x, work))

    def close(self) -> None:
        """Until everything that was sent is gone."""
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
