"""What a trace says about itself: which rank of how many, on which device, by which versions."""

import re
from pathlib import Path
from typing import Any

from planner.replay.decode import File, number

RANK = re.compile(r"rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
MOST_RANKS = 1_000_000


class About:
    """Of one file."""

    def __init__(self, source: str, file: File) -> None:
        self.source, self.file = source, file
        self.distributed: dict[str, Any] = file.distributed if isinstance(file.distributed, dict) else {}

    def said(self, key: str) -> int | None:
        value = self.distributed.get(key)
        found = number(value) if isinstance(value, (int, float, str)) else None
        return None if found is None else int(found)

    def rank(self) -> int | None:
        """From the file, else from its name."""
        named = RANK.search(Path(self.source).name)
        said = self.said("rank")
        return said if said is not None and possible(said) else int(named.group(1)) if named else None

    def world_size(self) -> int | None:
        said = self.said("world_size")
        return said if said is not None and 1 <= said <= MOST_RANKS else None

    def notes(self) -> list[str]:
        """What it says that cannot be."""
        said = self.said("rank")
        return (
            [] if said is None or possible(said) else [f"the trace says that its rank is {said:.6g}: that is not taken"]
        )

    def device(self) -> str:
        devices = self.file.devices
        first = devices[0] if isinstance(devices, list) and devices else {}
        return str(first.get("name", "")) if isinstance(first, dict) else ""

    def versions(self) -> dict[str, str]:
        """Of what made the trace, as far as it says."""
        file = self.file
        given = {
            "torch": file.torch_version,
            "cuda runtime": file.cuda_runtime_version,
            "cuda driver": file.cuda_driver_version,
            "cupti": file.cupti_version,
            "nccl": self.distributed.get("nccl_version"),
            "kineto schema": file.schema,
        }
        return {name: str(value).removesuffix(".0") for name, value in given.items() if value is not None}


def possible(rank: int) -> bool:
    return 0 <= rank < MOST_RANKS
