"""References to tasks in a plan file: `vit.F1[0-11]`, `llm.send.F1@2`, `llm.gather.0@1`, `llm.update`.

A reference starts with the module and the phase. A pass (F, B, I or W) is followed by its micro-batch, also where its
activations or gradients are sent or received; gather, sync, update and offload have the micro-batch behind a dot, or
none where they run once a step. Layers, a stage and a group may follow, in this order, and narrow the reference:
`vit.B2[12-23]@1/v0`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from planner.specs.base import Layers

if TYPE_CHECKING:
    from planner.plan.task import Phase

NAME_CHARS = r"[A-Za-z0-9_.+-]+"
TASK_REFERENCE = re.compile(
    rf"(?P<module>{NAME_CHARS}?)(?<!\.send)(?<!\.recv)\."  # no module is called llm.send
    r"(?:(?P<pass>[FBIW])(?P<at>[0-9]{1,9})"
    r"|(?P<transfer>send|recv)\.(?P<of>[FB])(?P<carried>[0-9]{1,9})"
    r"|(?P<other>gather|sync|update|offload)(?:\.(?P<row>[0-9]{1,9}))?)"
    r"(?:\[(?P<layers>[^]]*)\])?"
    r"(?:@(?P<stage>[0-9]{1,9}))?"
    rf"(?:/(?P<group>{NAME_CHARS}(?:>{NAME_CHARS})?))?"
)
EXAMPLES = "vit.F1[0-11], llm.send.F1@2, llm.gather.0@1/all, or llm.update"


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A parsed reference; it matches any value of a field that is None or empty."""

    module: str
    phase: "Phase"
    micro_batch: int | None = None  # None: a task that runs once a step
    of: str = ""  # what a send or recv carries: F or B
    layers: Layers | None = None
    stage: int | None = None
    group: str = ""

    def __str__(self) -> str:
        micro_batch = "" if self.micro_batch is None else str(self.micro_batch)
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
