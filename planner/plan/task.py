"""Tasks: what the runtime executes and the simulator times. They are derived from a plan and never stored."""

from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr

from planner.plan.plan_file import SequenceSplit
from planner.specs.base import Layers, Ranks
from planner.specs.sequence_sharding import whole_shares
from planner.specs.workload.items import Document, packed_documents

Phase = Literal["F", "B", "I", "W", "send", "recv", "gather", "sync", "update", "offload"]
PHASE_STREAMS: dict[Phase, str] = {
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


NO_RANKS = Ranks()


def task_id(module: str, layers: Layers, phase: Phase, micro_batch: int | None, group: str, of: str = "") -> str:
    """Return the id of a task: `module[layers]/phase/micro-batch/group`."""
    return f"{module}[{layers}]/{phase}{of}/{'step' if micro_batch is None else micro_batch}/{group}"


class Task(msgspec.Struct, frozen=True):
    """A unit of work (a pass, a collective, a transfer, an update) that its ranks start and end together. There may be
    a million: of frozen classes this kind is made quickest.
    """

    module: str
    layers: Layers
    phase: Phase
    micro_batch: int | None  # None: it runs once a step
    group: str
    ranks: Ranks
    sizes: tuple[int, ...] = ()  # tokens of each item
    items: tuple[int, ...] = ()
    degree: int = 1  # ranks over which an item's tokens are sharded
    share: float = 1.0  # of each device's compute
    ring: int = 1  # blocks of ranks that pass keys and values around (ring attention)
    offload: tuple[float, ...] = ()  # of each item, the share of activations in host memory; empty: none
    of: str = ""  # what a send or recv carries: F (activations) or B (their gradients)
    peers: Ranks = NO_RANKS  # of a send or recv: the ranks of the other end
    after: tuple[str, ...] = ()  # ids of tasks that must end before it starts
    parts: tuple[tuple[int, ...], ...] = ()  # tokens of each part of each item; empty: no item has several parts
    id: str = ""  # by `task_id`: the only key that joins plan, timeline, trace and ledger

    def __post_init__(self) -> None:
        """Make the id, which follows from the other fields, where it is not given."""
        if not self.id:
            made = task_id(self.module, self.layers, self.phase, self.micro_batch, self.group, self.of)
            force_setattr(self, "id", made)

    @property
    def stream(self) -> str:
        """The stream of its ranks that the task occupies: tasks of one stream run one after another."""
        return PHASE_STREAMS[self.phase]

    @property
    def split(self) -> SequenceSplit:
        """How each item is sharded over the ranks."""
        return SequenceSplit(self.degree // self.ring, self.ring)

    @property
    def tokens(self) -> int:
        """Tokens of all items together."""
        return sum(self.sizes)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each document: attention stays within it. An item is one, or each of its parts is."""
        return tuple(length for item in self.parts for length in item) if self.parts else self.sizes

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents of all items, in their order."""
        return packed_documents(self.items, self.parts or [(size,) for size in self.sizes])

    def shares(self) -> list[tuple[int, ...]] | None:
        """Return the documents of each rank by their lengths, where ranks share whole parts of items and exchange
        nothing; None where documents are sharded.
        """
        return whole_shares(self.lengths, self.split) if self.parts else None

    def fullest_share(self) -> "Task":
        """Return the task as its fullest rank has it, where ranks share whole parts: whole documents, and no exchange;
        else itself.
        """
        shares = self.shares()
        if shares is None:
            return self
        return self.of_share(max(shares, key=lambda lengths: (sum(lengths), sum(each * each for each in lengths))))

    def of_share(self, lengths: tuple[int, ...]) -> "Task":
        """Return the task as a rank has it whose whole documents have these lengths."""
        return self.changed(degree=1, parts=(lengths,), sizes=(sum(lengths),))

    def changed(self, **fields: Any) -> "Task":
        """Return the task with other values in these fields, and the id that follows from them."""
        return msgspec.structs.replace(self, id="", **fields)

    def with_dependencies(self, *ids: str) -> "Task":
        """Return the task with these ids added to those that it waits for."""
        after = (*self.after, *(i for i in ids if i not in self.after))
        return msgspec.structs.replace(self, after=after)  # on which its id does not depend

    def on_group(self, group: str, ranks: Ranks) -> "Task":
        """Return the task of another group, on its ranks."""
        return self.changed(group=group, ranks=ranks)

    def as_transfer(self, phase: Phase, of: str, peers: Ranks, after: tuple[str, ...]) -> "Task":
        """Return the send or recv of this pass. Quicker than `changed`, and called very often."""
        return Task(
            self.module, self.layers, phase, self.micro_batch, self.group, self.ranks, self.sizes, self.items,
            self.degree, self.share, self.ring, self.offload, of, peers, after, self.parts,
        )  # fmt: skip
