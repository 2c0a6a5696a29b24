"""Step seconds of many cases at once: cases that differ in numbers only are priced as arrays."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.costs import NON_NUMERIC_FIELDS, LayoutColumns, MachineModel, stack_columns
from planner.costs.step import fed_step_seconds, static_step_seconds
from planner.published.possible_setups import each_setup, mean_over_setups
from planner.published.published_case import PublishedCase

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


def log_seconds(
    cases: Sequence[PublishedCase], seconds_of: Callable[[CaseGroup, int], Seconds]
) -> tuple[Seconds, Seconds]:
    """Mean and standard deviation (cases,) of the logarithms of step seconds over the setups of each case, in order;
    `seconds_of`: those (cases,) of a group, and the index of a case of it.
    """
    every, owners = each_setup(cases)
    logs = np.zeros(len(every))
    for group in group_cases(every):
        logs[group.indices] = np.log(seconds_of(group, int(owners[group.indices[0]])))
    return mean_over_setups(logs, owners)


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
