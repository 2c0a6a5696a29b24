"""The coefficients that published step times can tell: a few traits of each framework, a pace of each device.

Each is positive and fitted as its logarithm, near a prior with a width: where the records say nothing of it, it stays
there. A trait that is a share is at most 1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner.published.case import Case
from planner.specs.base import changed
from planner.specs.rates import Rates
from planner.specs.timing import Timing


class Knob(NamedTuple):
    """What is fitted: a trait of a framework, or what a device sustains in a precision."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class Prior:
    value: float
    width: float  # standard deviation of the logarithm


PACE = Prior(0.92, 0.15)  # of kernels timed alone, what a device sustains
CHIPS = {  # devices that have another's chip
    "h800": "h100-80gb",
    "a800": "a100-80gb",
    "a100-40gb": "a100-80gb",
    "v100-16gb": "v100-32gb",
    "gb300": "b300",
}
COMMON = "generic"  # the framework that all are, at first
OWN = ("shard_ms",)  # traits that say nothing of other frameworks
SPARSE = ("experts", "ep_exposed", "imbalance", "expert_us")  # of experts
PACES = ("bf16", "fp8")
TRAITS = {
    "passes": Prior(1.2, 0.25),
    "kernels": Prior(1.0, 0.07),
    "attention": Prior(0.7, 0.25),
    "experts": Prior(1.15, 0.15),
    "cast": Prior(0.5, 0.4),
    "tp_exposed": Prior(0.6, 0.4),
    "ep_exposed": Prior(0.7, 0.5),
    "overlapped": Prior(0.4, 0.4),
    "imbalance": Prior(0.3, 0.5),
    "pp_exposed": Prior(0.4, 0.5),
    "dp_window": Prior(0.6, 0.5),
    "expert_us": Prior(2000.0, 0.6),
    "layer_us": Prior(150.0, 0.7),
    "tp_us": Prior(100.0, 0.7),
    "micro_batch_ms": Prior(0.3, 0.7),
    "step_ms": Prior(20.0, 0.5),
    "shard_ms": Prior(0.02, 1.5),
    "jitter": Prior(0.003, 0.3),
}
SHARES = ("overlapped", "cast", "tp_exposed", "ep_exposed", "pp_exposed", "dp_window")
Values = Mapping[Knob, Any]  # numbers, or arrays of them that broadcast with a setup's


def knobs(cases: Iterable[Case]) -> list[Knob]:
    """Those that these cases depend on."""
    found: dict[Knob, None] = {}
    for case in cases:
        found.update(dict.fromkeys(of_case(case)))
    return sorted(found)


def of_case(case: Case) -> list[Knob]:
    """A trait of one framework is not looked for where all are fitted as one, nor experts' where there are none."""
    traits = [n for n in TRAITS if case.software != COMMON or n not in OWN]
    if case.module.routed is None:
        traits = [n for n in traits if n not in SPARSE]
    return [Knob(case.software, name) for name in traits] + [pace_of(case)]


def pace_of(case: Case) -> Knob:
    return Knob(CHIPS.get(case.device, case.device), "fp8" if case.setup.dtype == "fp8" else "bf16")


def prior(knob: Knob) -> Prior:
    return TRAITS.get(knob.name, PACE)


def with_traits(timing: Timing, owner: str, values: Values) -> Timing:
    """A framework's traits with what was found of them."""
    found = {name: values[Knob(owner, name)] for name in TRAITS if Knob(owner, name) in values}
    found |= {name: np.minimum(1.0, found[name]) for name in SHARES if name in found}
    if "tp_exposed" in found:
        found["tp_exposed_backward"] = found["tp_exposed"]
    return changed(timing, **found)


def with_pace(rates: Rates, owner: str, values: Values) -> Rates:
    """A device's rates with what was found of its pace."""
    chip = CHIPS.get(owner, owner)
    found = {name: values[Knob(chip, name)] for name in PACES if Knob(chip, name) in values}
    return changed(rates, sustained={**rates.sustained, **found})
