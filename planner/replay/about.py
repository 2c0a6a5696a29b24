"""What a trace says about itself: which rank of how many, on which device, by which versions."""

import re
from pathlib import Path
from typing import Any

from planner.replay.decode import File, number

RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)


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
        return said if said is not None else int(named.group(1)) if named else None

    def world_size(self) -> int | None:
        return self.said("world_size")

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
