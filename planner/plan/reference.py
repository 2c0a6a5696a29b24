"""How a plan names a task, or several that are alike: `vit.F1[0-11]`, `llm.send.F1@2`, `llm.gather.0@1`, `llm.update`.

First the module and what is done. A pass, F, B, I or W, has its micro-batch behind it, also one whose activations or
gradients are sent or received; gather, sync, update and offload have it behind a dot, or none where they are done once
a step. Whoever means less than all of these says which layers, which stage, which group, in this order:
`vit.B2[12-23]@1/v0`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from planner.specs.base import Layers

if TYPE_CHECKING:
    from planner.plan.task import Phase

NAMES = r"[A-Za-z0-9_.+-]+"
REFERENCE = re.compile(
    rf"(?P<module>{NAMES}?)(?<!\.send)(?<!\.recv)\."  # no module is called llm.send
    r"(?:(?P<pass>[FBIW])(?P<at>[0-9]{1,9})"
    r"|(?P<transfer>send|recv)\.(?P<of>[FB])(?P<carried>[0-9]{1,9})"
    r"|(?P<other>gather|sync|update|offload)(?:\.(?P<row>[0-9]{1,9}))?)"
    r"(?:\[(?P<layers>[^]]*)\])?"
    r"(?:@(?P<stage>[0-9]{1,9}))?"
    rf"(?:/(?P<group>{NAMES}(?:>{NAMES})?))?"
)
EXAMPLES = "vit.F1[0-11], llm.send.F1@2, llm.gather.0@1/all, or llm.update"


@dataclass(frozen=True, slots=True)
class TaskRef:
    """Whatever it does not say may be any."""

    module: str
    phase: "Phase"
    micro_batch: int | None = None  # None: once a step
    of: str = ""  # what a send or recv carries: F or B
    layers: Layers | None = None
    stage: int | None = None
    group: str = ""

    def __str__(self) -> str:
        row = "" if self.micro_batch is None else str(self.micro_batch)
        if self.of:
            done = f"{self.phase}.{self.of}{row}"
        elif len(self.phase) == 1:
            done = f"{self.phase}{row}"
        else:
            done = f"{self.phase}.{row}" if row else self.phase
        layers = "" if self.layers is None else f"[{self.layers}]"
        stage = "" if self.stage is None else f"@{self.stage}"
        return f"{self.module}.{done}{layers}{stage}" + (f"/{self.group}" if self.group else "")


@lru_cache(maxsize=4096)
def parsed(text: str) -> TaskRef:
    """Raises ValueError, which says `what is wrong | what to do`."""
    found = REFERENCE.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` names no task | write it like {EXAMPLES}")
    row = found["at"] or found["carried"] or found["row"]
    phase: Any = found["pass"] or found["transfer"] or found["other"]
    return TaskRef(
        module=found["module"],
        phase=phase,
        micro_batch=None if row is None else int(row),
        of=found["of"] or "",
        layers=None if found["layers"] is None else Layers(Layers.from_file(found["layers"])),
        stage=None if found["stage"] is None else int(found["stage"]),
        group=found["group"] or "",
    )


class TaskName(str):
    """A reference as a file spells it."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "TaskName":
        if not isinstance(value, str):
            raise ValueError(f"`{value}` names no task | write it like {EXAMPLES}")
        parsed(value)
        return cls(value)

    def to_file(self) -> str:
        return str(self)

    @staticmethod
    def schema() -> dict[str, Any]:
        return {"type": "string", "description": f"a task: {EXAMPLES}"}
