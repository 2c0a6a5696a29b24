"""Step seconds of many cases at once: cases that differ in numbers only are priced as arrays."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner import files
from planner.costs import NON_NUMERIC_FIELDS, LayoutColumns, MachineModel, stack_columns
from planner.costs.step import static_step_seconds
from planner.published.published_case import CaseEncoder, PublishedCase

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
            files.json_text(case.module),
            case.encoder,
            case.device,
            case.software,
            case.attention_kernel,
            case.fp8_recipe,
            case.overlaps_replicas,
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


def case_seconds(groups: Sequence[CaseGroup], count: int, machine: Callable[[PublishedCase], MachineModel]) -> Seconds:
    """Step seconds (count,) of every case, in order."""
    result = np.zeros(count)
    for group in groups:
        result[group.indices] = group_seconds(group, machine(group.first))
    return result


def group_seconds(group: CaseGroup, machine: MachineModel) -> Seconds:
    """Step seconds (cases,) of a group: the module, after its encoder on the same ranks."""
    module_seconds: Seconds = static_step_seconds(group.first.module, group.setup, machine).seconds
    encoder = group.first.encoder
    if encoder is None:
        return module_seconds
    first = static_step_seconds(encoder.module, encoder_setup(encoder, group.setup), machine)
    encoder_seconds: Seconds = first.seconds - first.overhead  # per step, so counted once
    return module_seconds + encoder_seconds


def encoder_setup(encoder: CaseEncoder, setup: LayoutColumns) -> LayoutColumns:
    """The encoder's setup: the layout of the decoder that reads it, with its own tokens."""
    return replace(setup, seq=float(encoder.seq), cross_reads=0.0, cross_pairs=0.0)
