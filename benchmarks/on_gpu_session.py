"""One session on a GPU: its parts, one after the other, and where what they found is written."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from planner import files
from planner.specs.parallelism import Dtype
from planner.units import duration


@dataclass(slots=True)
class Session:
    """Where results go, and what there is so far."""

    folder: Path
    scratch: Path  # for files that only this program reads
    kind: Literal["cpu", "cuda"]
    quick: bool
    device: str
    results: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def profile_path(self) -> Path:
        return self.folder / f"{self.device}.yaml"

    @property
    def dtype(self) -> Dtype:
        return "bf16" if self.kind == "cuda" else "float32"

    def part(self, name: str, run: Callable[["Session"], Any]) -> None:
        """Run one part, and write down what came of it."""
        self.say(f"\n{name}")
        began = time.monotonic()
        try:
            result = run(self)
        except Exception as error:
            result = {"failed": str(error), "traceback": traceback.format_exc()}
            self.say(f"  FAILED: {error}")
            if error.__cause__:
                result["cause"] = str(error.__cause__)
        self.results[name] = {"seconds": round(time.monotonic() - began, 2), "result": result}
        self.say(f"  ({duration(time.monotonic() - began)}; {duration(time.monotonic() - self.began)} in all)")
        files.write_text(self.folder / "raw.json", files.json_text(self.results))
        files.write_text(self.folder / "summary.txt", "\n".join(self.lines) + "\n")

    def say(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)
