"""Orders of pipeline passes: ours beside the zero-bubble scheduler's, on its inputs and in its measure.

`span` is its measure: of each stage the seconds from the start of its first slot to the end of its last, and of these
the longest. `step` is from the first start of all to the last end. Its results are of its own run on these inputs, with
F taking 2 of memory, and I and W giving 1 back each, which is what its own examples have.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from benchmarks.registry import Figures
from planner.orders import OrderObjective, search_order
from planner.orders.slot_timing import fits_memory
from tests.pipelines import uniform_pipeline

STAGES, EFFORT = 8, 2  # effort: that jobs have when they name none
OBJECTIVES: tuple[OrderObjective, ...] = ("span", "step")


class Case(NamedTuple):
    """Milliseconds; memory in forwards."""

    micro_batches: int
    seconds: tuple[float, float, float]  # of F, I, W
    transfer: float
    room: int
    zero_bubble: float  # span


CASES = (
    Case(24, (18.522, 18.086, 9.337), 0.601, 8, 1310.4),
    Case(24, (18.522, 18.086, 9.337), 0.601, 16, 1152.6),
    Case(64, (29.718, 29.444, 19.927), 0.527, 8, 5351.1),
)


def run(data: Path | None) -> Iterator[Figures]:
    for case in CASES:
        pipeline = uniform_pipeline(STAGES, case.micro_batches, case.seconds, case.transfer, 2.0 * case.room)
        for objective in OBJECTIVES:
            start = perf_counter()
            found = search_order(pipeline, objective, EFFORT)
            seconds = perf_counter() - start
            if not fits_memory(pipeline, found.order):
                raise ValueError("an order holds more than it may")
            yield {
                "stages": STAGES,
                "micro_batches": case.micro_batches,
                "memory_forwards": case.room,
                "objective": objective,
                "value_ms": round(found.seconds, 3),
                "bound_ms": round(found.bound.seconds, 3),
                "gap": round(found.seconds / found.bound.seconds - 1, 6),
                "bound_by": found.bound.by,
                "zero_bubble_ms": case.zero_bubble if objective == "span" else None,
                "tried": found.orders_tried,
                "seconds": round(seconds, 4),
            }
