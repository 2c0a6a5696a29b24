"""What a node has, as people write it: `8xh100` and `8x400Gb`."""

import re
from typing import Any

GPUS = re.compile(r"([1-9]\d{0,5})\s*[x×*]\s*(\S.*)", re.ASCII)
ADAPTERS = re.compile(r"(?:([1-9]\d{0,3})\s*[x×*]\s*)?(\d{1,6}(?:\.\d{1,6})?)\s*([GT])i?(b|B)(?:ps|it/s|/s)?", re.ASCII)
GIGA = {"G": 1.0, "T": 1000.0}
BYTES = {"b": 0.125, "B": 1.0}  # of the unit
SHOWN = 40  # characters of a text that a message quotes


class NodePart(str):
    """A text in a file that is parsed when it is read."""

    __slots__ = ()

    def to_file(self) -> str:
        return str(self)


class NodeGpus(NodePart):
    """How many GPUs of which device: a file of profiles/devices, the beginning of its name, or a path."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "NodeGpus":
        if not isinstance(value, str) or not GPUS.fullmatch(value.strip()):
            raise ValueError(f"`{str(value)[:SHOWN]}` is no number of GPUs of a device | write it like 8xh100")
        return cls(value.strip())

    @property
    def number(self) -> int:
        """How many there are in a node."""
        return int(re.split("[x×*]", self)[0])

    @property
    def device(self) -> str:
        """The name of the device, or the path of its file."""
        named = re.split("[x×*]", self, maxsplit=1)[1].strip()
        return named if "/" in named else named.lower()

    @staticmethod
    def schema() -> dict[str, Any]:
        return {"type": "string", "description": "GPUs of a node, and their device", "examples": ["8xh100"]}


class NodeAdapters(NodePart):
    """The network adapters of a node with their rate; `b` is bits, `B` bytes."""

    __slots__ = ()

    @classmethod
    def from_file(cls, value: Any) -> "NodeAdapters":
        if not isinstance(value, str) or not adapters_gb_per_s(value):
            raise ValueError(f"`{str(value)[:SHOWN]}` is no rate of adapters | write it like 8x400Gb")
        return cls(value.strip())

    @property
    def gb_per_s(self) -> float:
        """GB/s of all together in one direction: 400 for 8x400Gb."""
        return adapters_gb_per_s(self)

    @staticmethod
    def schema() -> dict[str, Any]:
        return {"type": "string", "description": "network adapters of a node, and their rate", "examples": ["8x400Gb"]}


def adapters_gb_per_s(text: str) -> float:
    """Return GB/s of adapters that are written like 8x400Gb; 0 where the text is none."""
    found = ADAPTERS.fullmatch(text.strip())
    return int(found[1] or 1) * float(found[2]) * GIGA[found[3]] * BYTES[found[4]] if found else 0.0
