"""A pipeline that somebody measured (Primus, 8 stages × 16 micro-batches, 1F1B), simulated from its own passes.

Twice: with each iteration's own forward and backward seconds, and with the medians of all the other iterations. A send
holds the stage that sends, as that run's do; it takes what the first micro-batch there and the last one back,
which nothing delays, show between neighbours. The first iteration warms up and is left out.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.registry import Figures
from planner.plan.schedules import schedule_slots
from planner.simulate.activities import ActivityBuilder
from planner.simulate.compiled_clock import run_activities as run_clock
from planner.units import MS

FILE = "pipeline/primus_pp8_gpu8_layer64_gbs16.json.gz"
KEYS = {"F": "fwd", "B": "bwd"}

Slot = tuple[str, int, int]  # phase, micro-batch, stage; a send is `sF` or `sB`


@dataclass(frozen=True, slots=True)
class Iteration:
    """Seconds of one iteration, of each pass in it, and from each stage to the next."""

    seconds: float
    passes: dict[Slot, float]
    sends: tuple[float, ...]


def run(data: Path | None) -> Iterator[Figures]:
    if data is None or not (data / FILE).is_file():
        return
    measured = read(data / FILE)
    for name, errors in (("own", own(measured)), ("others", left_out(measured))):
        sizes = sorted(map(abs, errors))
        yield {
            "passes_of": name,
            "iterations": len(errors),
            "median_error": median(sizes),
            "worst_error": sizes[-1],
            "bias": median(errors),
            "times": "measured (published), simulated",
        }


def own(measured: list[Iteration]) -> list[float]:
    """Relative errors, each from what that iteration's passes took."""
    return [simulated(each.passes, each.sends) / each.seconds - 1.0 for each in measured]


def left_out(measured: list[Iteration]) -> list[float]:
    """Relative errors, each from the others' medians."""
    errors = []
    for number, each in enumerate(measured):
        others = measured[:number] + measured[number + 1 :]
        passes = {slot: median(other.passes[slot] for other in others) for slot in each.passes}
        sends = tuple(median(pair) for pair in zip(*(other.sends for other in others), strict=True))
        errors.append(simulated(passes, sends) / each.seconds - 1.0)
    return errors


def simulated(passes: dict[Slot, float], sends: tuple[float, ...]) -> float:
    """Seconds of 1F1B with these passes; `sends`: from each stage to the next, and back."""
    stages, count = len(sends) + 1, 1 + max(row for _, row, _ in passes)
    order: list[Slot] = []
    for stage, slots in enumerate(schedule_slots("1f1b", stages, count)):
        for phase, row, _ in slots:
            order.append((phase, row, stage))
            if 0 <= towards(phase, stage) < stages:
                order.append((f"s{phase}", row, stage))
    number = {slot: i for i, slot in enumerate(order)}
    built = ActivityBuilder()
    lanes = [built.add_lane() for _ in range(stages)]
    for phase, row, stage in order:
        if phase in KEYS:
            sent = (f"s{phase}", row, 2 * stage - towards(phase, stage))
            built.add(passes[phase, row, stage], [lanes[stage]], [number[sent]] if sent in number else [])
        else:
            pair = min(stage, towards(phase[1], stage))
            built.add(sends[pair], [lanes[stage]], [number[phase[1], row, stage]])
    times, _ = run_clock(built.build())
    return float(times.ends.max())


def towards(phase: str, stage: int) -> int:
    return stage + 1 if phase == "F" else stage - 1


def read(path: Path) -> list[Iteration]:
    with gzip.open(path) as file:
        found = json.load(file)
    stages = [found[f"pp_rank_{stage}"] for stage in range(found["config"]["pp_size"])]
    return [iteration([stage[number] for stage in stages]) for number in list(stages[0])[1:]]


def iteration(stages: list[dict[str, Any]]) -> Iteration:
    passes = {
        (phase, row, stage): (end - start) * MS
        for stage, times in enumerate(stages)
        for phase, key in KEYS.items()
        for row, (start, end) in enumerate(zip(times[f"{key}_start"], times[f"{key}_end"], strict=True))
    }
    sends = tuple(max(0.0, hop(near, far)) for near, far in pairwise(stages))
    return Iteration(max(times["total"] for times in stages) * MS, passes, sends)


def hop(near: dict[str, Any], far: dict[str, Any]) -> float:
    """Seconds from a stage to the next: of the first micro-batch there and the last one back, as clocks differ."""
    there, back = far["fwd_start"][0] - near["fwd_end"][0], near["bwd_start"][-1] - far["bwd_end"][-1]
    return float(there + back) / 2 * MS
