"""Point-to-point messages whose shapes both ranks know in advance: sent asynchronously, received in the sender's order.

A channel leads from one rank to another, for activations between stages or for outputs of modules: on CUDA each has a
communicator of its own. A rank's messages arrive in the order in which they were sent, whether or not the backend has
tags. The receiver posts one receive more than it needs, so that the message travels during compute; each between the
same operations of both ranks as the sender sends it: collectives, and messages the other way.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

POSTED_AHEAD = 1  # receives that are posted on a channel before they are needed

RankPair = tuple[int, int]  # (source, target) ranks
Carried = Literal["stages", "modules"]  # activations between stages of a module, outputs of one module for another


class Channel(NamedTuple):
    """Messages of one kind from one rank to another."""

    source: int
    target: int
    carries: Carried


class ExpectedMessage(NamedTuple):
    name: str
    carries: Carried
    memory: Callable[[], Tensor]  # allocates it
    behind: int = 0  # operations in which both ranks take part, and which begin before it is sent


class Channels:
    """This rank's ends of all channels. Every rank creates the same, at load."""

    def __init__(self, channels: Iterable[Channel], device: torch.device) -> None:
        self.rank, self.device = dist.get_rank(), device
        # NCCL serialises the messages of a communicator, so each channel has its own. Gloo needs none.
        per_channel = device.type == "cuda"
        self.groups = {
            each: dist.new_group(sorted((each.source, each.target))) if per_channel else None
            for each in sorted(set(channels))
        }
        self.sent: list[tuple[dist.Work, Tensor]] = []
        self.expected: dict[int, deque[ExpectedMessage]] = {}
        self.begun: Counter[int] = Counter()  # by source, operations that begin on both ranks, in this step
        self.posted: dict[int, deque[tuple[str, Tensor, dist.Work]]] = {}

    def connect(self) -> None:
        """Send a byte over each channel, in one order on all ranks: NCCL connects two at a first message."""
        byte = torch.zeros(1, dtype=torch.uint8, device=self.device)
        for (source, target, _), group in self.groups.items():
            if self.rank == source:
                dist.send(byte, target, group=group)
            elif self.rank == target:
                dist.recv(byte, source, group=group)

    def begin_step(self, messages: Mapping[int, Iterable[ExpectedMessage]]) -> None:
        """What ranks will send in this step: by sender, in its order."""
        self.expected = {source: deque(of_source) for source, of_source in messages.items()}
        self.posted = {source: deque() for source in messages}
        self.begun.clear()

    def begin_with(self, source: int) -> None:
        """Called before each operation in which both ranks take part: posts the receives of what is sent before it."""
        while self.may_post(source):
            self.post_receive(source)
        self.begun[source] += 1

    def may_post(self, source: int) -> bool:
        """Whether the next message of a rank is sent before the next operation in which both take part."""
        coming = self.expected.get(source)
        return coming is not None and len(coming) > 0 and coming[0].behind <= self.begun[source]

    def send(self, target: int, x: Tensor, carries: Carried) -> None:
        """Send x (any shape) to a rank, without waiting."""
        x = x.contiguous()
        self.begin_with(target)
        work = dist.isend(x, target, group=self.groups[Channel(self.rank, target, carries)])
        assert work is not None, "this rank is in the group"
        self.sent.append((work, x))
        self.sent = [(work, x) for work, x in self.sent if not work.is_completed()]

    def receive(self, source: int, name: str) -> Tensor:
        """The message of this name, of the shape that was expected; posts the receives that follow it."""
        coming = self.posted[source]
        while name not in [each for each, _, _ in coming]:
            self.post_receive(source)
        for _ in range(POSTED_AHEAD):
            if len(coming) <= POSTED_AHEAD and self.may_post(source):
                self.post_receive(source)
        index = [each for each, _, _ in coming].index(name)
        _, x, work = coming[index]
        del coming[index]
        work.wait()
        return x

    def post_receive(self, source: int) -> None:
        """Post the next receive from this rank."""
        name, carries, memory, _ = self.expected[source].popleft()
        x = memory()
        work = dist.irecv(x, source, group=self.groups[Channel(source, self.rank, carries)])
        assert work is not None, "this rank is in the group"
        self.posted[source].append((name, x, work))

    def wait_for_sends(self) -> None:
        """Wait until everything is sent."""
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
