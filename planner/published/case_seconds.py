"""Step seconds of many cases at once: cases that differ in numbers only are priced as arrays."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs import NON_NUMERIC_FIELDS, LayoutColumns, MachineModel, stack_columns
from planner.costs.step import fed_step_seconds, static_step_seconds
from planner.published.published_case import PublishedCase
from planner.published.shipped_profiles import machine_as_shipped

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """Cases of one module on one machine, as one setup of arrays (cases,)."""

    first: PublishedCase
    setup: LayoutColumns
    indices: NDArray[np.int64]  # (cases,): indices of these cases among all


def group_cases(cases: Sequence[PublishedCase]) -> list[CaseGroup]:
    """Cases grouped by everything but their numbers, in the order of each group's first case."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        setup = case.setup
        kind = tuple(str(getattr(setup, name)) for name in NON_NUMERIC_FIELDS)
        key = (
            case.module,
            case.encoders,
            case.device,
            case.software,
            case.attention_kernel,
            case.fp8_recipe,
            case.overlaps_replicas,
            case.gathers_ahead,
            case.prefetches,
            case.experts_at_once,
            case.network,
        )
        groups[key + (kind,)].append(index)  # noqa: RUF005
    return [
        CaseGroup(
            cases[indices[0]],
            stack_columns([cases[index].setup for index in indices]),
            np.array(indices),
        )
        for indices in groups.values()
    ]


def case_seconds(groups: Sequence[CaseGroup], count: int) -> Seconds:
    """Step seconds (count,) of every case, in order. Raises InputError for a profile that cannot be read."""
    result = np.zeros(count)
    for group in groups:
        result[group.indices] = group_seconds(group, machine_as_shipped(group.first))
    return result


def group_seconds(group: CaseGroup, machine: MachineModel) -> Seconds:
    """Step seconds (cases,) of a group: the module, after what feeds it on its first stage or before that, and after
    encoders whose layers are in stages as its own are.
    """
    first, setup = group.first, group.setup
    feeding = [each.feeding(setup) for each in first.encoders if each.place != "all_stages"]
    seconds: Seconds = fed_step_seconds(first.module, setup, feeding, machine)
    for each in first.encoders:
        if each.place == "all_stages":
            step = static_step_seconds(each.module, each.in_stages(setup), machine)
            seconds = seconds + step.seconds - step.overhead  # per step, so counted once
    return seconds
