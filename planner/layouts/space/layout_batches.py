"""The layouts of a space as columns of the closed form, in batches that differ only in numbers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs import DISPATCHES, LayoutColumns
from planner.layouts.space.layout_fields import (
    DISPATCH,
    EP_OVERLAP,
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SCHEDULE,
    SCHEDULES,
    SOLVED_FIELDS,
    TrainingSetup,
    columns_for,
    layout_of,
)
from planner.layouts.space.layout_space import LayoutSpace
from planner.specs.parallelism import RecomputedPart, part_code, parts_of

LayoutIndices = NDArray[np.int64]  # indices of layouts of a space
LAYOUTS_PER_BATCH = 2**17  # layouts evaluated at once: their columns stay in the processor's cache


def column_batches(trained: TrainingSetup, found: LayoutSpace) -> Iterator[tuple[LayoutIndices, LayoutColumns]]:
    """The layouts in batches that differ only in numbers, each as one set of columns."""
    whole = np.isin(found["recompute"], [RECOMPUTE.index(each) for each in ("none", "full")])
    recomputed = np.where(whole, RECOMPUTE.index("none"), found["recompute"])
    kinds = (recomputed * len(DISPATCHES) + found[DISPATCH]) * len(SCHEDULES) + found[SCHEDULE]
    kinds = 2 * kinds + found[EP_OVERLAP]
    for kind in np.unique(kinds):
        (places,) = np.nonzero(kinds == kind)
        code = int(recomputed[places[0]])
        parts = None if code == RECOMPUTE_BY_RANGES else parts_of(RECOMPUTE[code])
        for start in range(0, len(places), LAYOUTS_PER_BATCH):
            some = places[start : start + LAYOUTS_PER_BATCH]
            yield some, columns_at(trained, {name: column[some] for name, column in found.items()}, parts)


def columns_at(
    trained: TrainingSetup, numbers: LayoutSpace, parts: frozenset[RecomputedPart] | None = frozenset()
) -> LayoutColumns:
    """Many layouts as one Columns; they agree on the parts that are recomputed in layers not recomputed in full, on
    dispatch, on the schedule and on overlap of ep. None: those of the job's ranges. The order of ranks is the job's,
    else the first one's: who solves for it sets it.
    """
    first = layout_of(trained, {name: int(each[0]) for name, each in numbers.items()})
    some = replace(columns_for(first, trained), schedule=SCHEDULES[int(numbers[SCHEDULE][0])])
    full = (numbers["recompute"] == RECOMPUTE.index("full")).astype(np.float64)
    full = np.where(numbers["recompute"] == RECOMPUTE_BY_RANGES, some.full_recompute, full)
    left_out = ("recompute", DISPATCH, SCHEDULE, EP_OVERLAP, *SOLVED_FIELDS)
    overlap = frozenset(kind for kind in trained.overlap if kind == "tp" or numbers[EP_OVERLAP][0])
    named: dict[str, Any] = {name: each.astype(np.float64) for name, each in numbers.items() if name not in left_out}
    named["micro_batch"] = named["micro_batch"] * trained.mean_share
    return replace(
        some,
        overlap=overlap or some.overlap,
        offload=trained.fixed.offload_share,
        offloaded_parts=part_code(trained.fixed.offloaded_parts),
        optimizer_offload=trained.fixed.optimizer_offload or 0.0,
        full_recompute=full,
        recomputed_parts=some.recomputed_parts if parts is None else parts,
        **named,
    )
