"""Step seconds of many cases at once: cases that differ in numbers only are priced as arrays."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner import files
from planner.costs.columns import WORDS, Columns, stacked
from planner.costs.compute.machine import Machine
from planner.costs.step.step import step_seconds
from planner.published.case import Case, Encoder

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Alike:
    """Cases of one module on one machine, as one setup of arrays (cases,)."""

    first: Case
    setup: Columns
    places: NDArray[np.int64]  # (cases,): indices of these cases among all


def alike(cases: Sequence[Case]) -> list[Alike]:
    """Cases grouped by everything but their numbers, in the order of each group's first case."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        setup = trained(case)
        kind = tuple(str(getattr(setup, name)) for name in WORDS)
        groups[files.json_text(case.module), case.encoder, case.device, case.software, case.fabric, kind].append(index)
    return [
        Alike(cases[indices[0]], stacked([trained(cases[index]) for index in indices]), np.array(indices))
        for indices in groups.values()
    ]


def trained(case: Case) -> Columns:
    """The setup of a case, with whether it trains adapters only."""
    return replace(case.setup, adapters=case.adapters)


def seconds(groups: Sequence[Alike], count: int, machine: Callable[[Case], Machine]) -> Seconds:
    """Step seconds (count,) of every case, in order."""
    result = np.zeros(count)
    for group in groups:
        result[group.places] = together(group, machine(group.first))
    return result


def together(group: Alike, machine: Machine) -> Seconds:
    """Step seconds (cases,) of a group: the module, after its encoder on the same ranks."""
    module_seconds: Seconds = step_seconds(group.first.module, group.setup, machine).seconds
    encoder = group.first.encoder
    if encoder is None:
        return module_seconds
    first = step_seconds(encoder.module, encoded(encoder, group.setup), machine)
    encoder_seconds: Seconds = first.seconds - first.overhead  # per step, so counted once
    return module_seconds + encoder_seconds


def encoded(encoder: Encoder, setup: Columns) -> Columns:
    """The encoder's setup: the layout of the decoder that reads it, with its own tokens."""
    return replace(setup, seq=float(encoder.seq), reads=0.0)
