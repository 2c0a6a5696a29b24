"""Tasks, what the runtime executes and the simulator times; and references to them in a plan file.

Tasks are derived from a plan and never stored. A reference, `vit.F1[0-11]`, `llm.send.F1@2`, `llm.gather.0@1` or
`llm.update`, starts with the module and the phase. A pass (F, B, I or W) is followed by its micro-batch, also where its
activations or gradients are sent or received; gather, sync, update, offload and loss have the micro-batch behind a
dot, or none where they run once a step. Layers, a stage and a group may follow, in this order, and narrow the
reference: `vit.B2[12-23]@1/v0`. Rules name passes of no micro-batch: `vit.F`, and `llm.F-2`, two before the one that is
meant.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr

from planner.specs.base import Layers, Ranks
from planner.specs.sequence_sharding import SequenceSplit, whole_shares
from planner.specs.workload.items import Document, packed_documents

Phase = Literal["F", "B", "I", "W", "send", "recv", "gather", "sync", "update", "offload", "loss"]
LOADER = "data loader"
RankWork = dict[str, float]  # seconds of one rank's own work in a step by kind: of a phase, or the loader
WORK_OF_PHASE: dict[Phase, str] = {
    "F": "forward",
    "B": "backward",
    "I": "backward",
    "W": "backward",
    "update": "update",
}
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
    "loss": "comm",
}
PASS_PHASES: tuple[Phase, ...] = ("F", "B", "I", "W")

NO_RANKS = Ranks()


def task_id(module: str, layers: Layers, phase: Phase, micro_batch: int | None, group: str, of: str = "") -> str:
    """Return the id of a task: `module[layers]/phase/micro-batch/group`."""
    return f"{module}[{layers}]/{phase}{of}/{'step' if micro_batch is None else micro_batch}/{group}"


class Task(msgspec.Struct, frozen=True):
    """A unit of work (a pass, a collective, a transfer, an update) that its ranks start and end together."""

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
    beside: bool = False  # a pass that runs beside what its ranks have of other modules, while these exchange
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


NAME_CHARS = r"[A-Za-z0-9_.+-]+"
TASK_REFERENCE = re.compile(
    rf"(?P<module>{NAME_CHARS}?)(?<!\.send)(?<!\.recv)\."  # no module is called llm.send
    r"(?:(?P<pass>[FBIW])(?:(?P<at>[0-9]{1,9})|(?:-(?P<earlier>[0-9]{1,9}))?)"
    r"|(?P<transfer>send|recv)\.(?P<of>[FB])(?P<carried>[0-9]{1,9})"
    r"|(?P<other>gather|sync|update|offload|loss)(?:\.(?P<row>[0-9]{1,9}))?)"
    r"(?:\[(?P<layers>[^]]*)\])?"
    r"(?:@(?P<stage>[0-9]{1,9}))?"
    rf"(?:/(?P<group>{NAME_CHARS}(?:>{NAME_CHARS})?))?"
)
EXAMPLES = "vit.F1[0-11], llm.send.F1@2, llm.gather.0@1/all, or llm.update"


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A parsed reference; it matches any value of a field that is None or empty."""

    module: str
    phase: Phase
    micro_batch: int | None = None  # None: a task that runs once a step
    of: str = ""  # what a send or recv carries: F or B
    layers: Layers | None = None
    stage: int | None = None
    group: str = ""
    earlier: int = 0  # of a pass of no micro-batch: so many before the one that is meant

    def __str__(self) -> str:
        micro_batch = str(self.micro_batch) if self.micro_batch is not None else f"-{self.earlier or ''}".rstrip("-")
        if self.of:
            phase = f"{self.phase}.{self.of}{micro_batch}"
        elif len(self.phase) == 1:
            phase = f"{self.phase}{micro_batch}"
        else:
            phase = f"{self.phase}.{micro_batch}" if micro_batch else self.phase
        layers = "" if self.layers is None else f"[{self.layers}]"
        stage = "" if self.stage is None else f"@{self.stage}"
        return f"{self.module}.{phase}{layers}{stage}" + (f"/{self.group}" if self.group else "")


@lru_cache(maxsize=4096)
def parse_task_ref(text: str) -> TaskRef:
    """Parse a reference. Raises ValueError with the text `what is wrong | what to do`."""
    match = TASK_REFERENCE.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` names no task | write it like {EXAMPLES}")
    micro_batch = match["at"] or match["carried"] or match["row"]
    phase: Any = match["pass"] or match["transfer"] or match["other"]
    return TaskRef(
        module=match["module"],
        phase=phase,
        micro_batch=None if micro_batch is None else int(micro_batch),
        of=match["of"] or "",
        layers=None if match["layers"] is None else Layers(Layers.from_file(match["layers"])),
        stage=None if match["stage"] is None else int(match["stage"]),
        group=match["group"] or "",
        earlier=int(match["earlier"] or 0),
    )


class TaskName(str):
    """The text of a reference, as written in a plan file."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "TaskName":
        if not isinstance(value, str):
            raise ValueError(f"`{value}` names no task | write it like {EXAMPLES}")
        parse_task_ref(value)
        return cls(value)

    def to_file(self) -> str:
        return str(self)

    @staticmethod
    def schema() -> dict[str, Any]:
        return {"type": "string", "description": f"a task: {EXAMPLES}"}
