"""The metrics file: one JSON line per step, which other programs can follow while it grows.

A run with the file of an earlier one appends to it. One that goes on from a checkpoint first cuts off the lines of the
steps that it trains again, so that the file has each step once. For any other, an incomplete last line, of a process
that was killed, stays as it is. Numbers that JSON does not have, such as a NaN loss, are null.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import SEEK_END
from pathlib import Path
from typing import Any

from planner.errors import InputError, RunFailed
from planner.runtime.run_result import StepResult

MetricsWriter = Callable[[int, StepResult], None]  # writes the line of a step, counted from 1


@contextmanager
def metrics_writer(path: Path | None, done: int | None = None) -> Iterator[MetricsWriter]:
    """Opens the file, and its folders if missing; without a path, nothing is written. `done`: steps of the checkpoint
    from which the run goes on; None: it is another run than that of earlier lines. Raises InputError when it cannot be
    written.
    """
    if path is None:
        yield lambda number, step: None
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab+", buffering=0)  # a line is there as soon as it is written
    except OSError as error:
        fix = "name a file in a folder that can be written"
        raise InputError(f"cannot write the file: {error.strerror}", where=str(path), fix=fix) from error
    with file:
        if done is not None and path.is_file():
            file.truncate(end_of_step(path.read_bytes(), done))
        if not ends_with_newline(path):
            file.write(b"\n")

        def write(number: int, step: StepResult) -> None:
            try:
                file.write(json.dumps(metrics_line(number, step)).encode() + b"\n")
            except OSError as error:
                fix = "make room, or fix what is named here; what was saved before can be resumed"
                message = f"the metrics of step {number} cannot be written: {error.strerror}"
                raise RunFailed(message, where=str(path), fix=fix) from error

        yield write


def end_of_step(raw: bytes, done: int) -> int:
    """How many bytes of a file are left without its last lines, of steps behind the first `done` of one run."""
    end, following = len(raw), math.inf
    for line in reversed(raw.splitlines(keepends=True)):
        step = step_of(line)
        if step is not None and not done < step < following:
            break
        end, following = end - len(line), following if step is None else step
    return end


def step_of(line: bytes) -> float | None:
    """The step of a line; None for a last one that is not whole, step 0 for any other text."""
    if not line.endswith(b"\n"):
        return None
    try:
        return float(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return 0.0


def ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, SEEK_END):
            return True
        file.seek(-1, SEEK_END)
        return file.read() == b"\n"


def metrics_line(number: int, step: StepResult) -> dict[str, Any]:
    """The JSON object of one step."""
    return {
        "step": number,
        "loss": finite_or_none(step.loss),
        "grad_norm": finite_or_none(step.grad_norm),
        "learning_rate": step.learning_rate,
        "tokens": step.tokens,
        "seconds": step.seconds,
        "loading_seconds": step.loading,
        "tokens_per_s": finite_or_none(step.tokens / step.whole_seconds if step.whole_seconds else None),
        "peak_bytes": max((peak for peak in step.peak_bytes if peak is not None), default=None),
        "memory_bytes": fullest(step),
    }


def fullest(step: StepResult) -> dict[str, float] | None:
    """The memory of the rank with the highest peak, with its number; None on the CPU."""
    if not step.memory:
        return None
    rank = max(range(len(step.memory)), key=lambda rank: step.memory[rank].peak)
    return {"rank": rank, **asdict(step.memory[rank])}


def finite_or_none(value: float | None) -> float | None:
    """The value if it is finite, else None."""
    return value if value is not None and math.isfinite(value) else None
