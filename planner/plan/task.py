"""The task: what runtime and simulator execute. Derived from a plan, never stored."""

from dataclasses import dataclass, field
from typing import Literal

from planner.plan.model import Split
from planner.specs.base import Layers, Ranks
from planner.specs.items import Document, documents_of

Phase = Literal["F", "B", "I", "W", "send", "recv", "gather", "sync", "update", "offload"]
STREAMS: dict[Phase, str] = {
    "F": "compute",
    "B": "compute",
    "I": "compute",
    "W": "compute",
    "update": "compute",
    "gather": "comm",
    "sync": "comm",
    "send": "send",
    "recv": "recv",
    "offload": "copy",
}


NOBODY = Ranks()


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work that its ranks start and end together."""

    module: str
    layers: Layers
    phase: Phase
    micro_batch: int | None  # None: once a step
    group: str
    ranks: Ranks
    sizes: tuple[int, ...] = ()  # tokens of each item
    items: tuple[int, ...] = ()
    degree: int = 1  # ranks an item's tokens are spread over
    share: float = 1.0  # of each device's compute
    ring: int = 1  # sub-groups of these ranks that pass keys and values around
    offload: tuple[float, ...] = ()  # of each item's activations, to host memory; empty: nothing
    of: str = ""  # what a send or recv carries: F (activations) or B (their gradients)
    peers: Ranks = NOBODY  # of a send or recv: the ranks on the other side
    after: tuple[str, ...] = ()  # ids of tasks that must have ended
    parts: tuple[tuple[int, ...], ...] = ()  # tokens of each item's parts; empty: no item has several
    known_id: str = field(default="", init=False, repr=False, compare=False)  # spelled once: everything asks for it

    @property
    def id(self) -> str:
        """`module[layers]/phase/micro-batch/group`: the only key that joins plan, timeline, trace and ledger."""
        if not self.known_id:
            row = "step" if self.micro_batch is None else self.micro_batch
            spelled = f"{self.module}[{self.layers}]/{self.phase}{self.of}/{row}/{self.group}"
            object.__setattr__(self, "known_id", spelled)
        return self.known_id

    @property
    def stream(self) -> str:
        return STREAMS[self.phase]

    @property
    def split(self) -> Split:
        return Split(self.degree // self.ring, self.ring)

    @property
    def tokens(self) -> int:
        return sum(self.sizes)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each document: what attends to itself alone, which is an item, or each of its parts."""
        return tuple(length for item in self.parts for length in item) if self.parts else self.sizes

    @property
    def documents(self) -> tuple[Document, ...]:
        """Of all items, in their order."""
        return documents_of(self.items, self.parts or [(size,) for size in self.sizes])

    def waiting_for(self, *ids: str) -> "Task":
        """The same task, waiting for more."""
        return self.transferring(
            self.phase, self.of, self.peers, (*self.after, *(i for i in ids if i not in self.after))
        )

    def transferring(self, phase: Phase, of: str, peers: Ranks, after: tuple[str, ...]) -> "Task":
        """The same work in another phase: its send or recv. (Quicker than `dataclasses.replace`, by far.)"""
        return Task(
            self.module, self.layers, phase, self.micro_batch, self.group, self.ranks, self.sizes, self.items,
            self.degree, self.share, self.ring, self.offload, of, peers, after, self.parts,
        )  # fmt: skip
