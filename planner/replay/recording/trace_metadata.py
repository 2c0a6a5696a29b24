"""Metadata of a trace: rank, world size, device, versions of the software."""

import re
from pathlib import Path
from typing import Any

from planner.replay.recording.kineto_events import TraceFile, parse_number

RANK = re.compile(r"rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
MOST_RANKS = 1_000_000


class TraceMetadata:
    """Metadata of one file."""

    def __init__(self, source: str, file: TraceFile) -> None:
        self.source, self.file = source, file
        self.distributed: dict[str, Any] = file.distributed if isinstance(file.distributed, dict) else {}

    def distributed_int(self, key: str) -> int | None:
        """An integer of `distributedInfo`; None where there is none."""
        value = self.distributed.get(key)
        found = parse_number(value) if isinstance(value, (int, float, str)) else None
        return None if found is None else int(found)

    def rank(self) -> int | None:
        """The rank that the file states, else the one in its name."""
        named = RANK.search(Path(self.source).name)
        stated = self.distributed_int("rank")
        return stated if stated is not None and is_possible_rank(stated) else int(named.group(1)) if named else None

    def world_size(self) -> int | None:
        stated = self.distributed_int("world_size")
        return stated if stated is not None and 1 <= stated <= MOST_RANKS else None

    def notes(self) -> list[str]:
        """A note where the stated rank is impossible."""
        stated = self.distributed_int("rank")
        return (
            []
            if stated is None or is_possible_rank(stated)
            else [f"the trace says that its rank is {stated:.6g}: ignored"]
        )

    def device(self) -> str:
        devices = self.file.devices
        first = devices[0] if isinstance(devices, list) and devices else {}
        return str(first.get("name", "")) if isinstance(first, dict) else ""

    def versions(self) -> dict[str, str]:
        """Versions of the software that recorded the trace, as far as they are stated."""
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


def is_possible_rank(rank: int) -> bool:
    return 0 <= rank < MOST_RANKS
