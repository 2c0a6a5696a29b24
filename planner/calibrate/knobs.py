"""Coefficients that published step times can determine: some of each framework, and sustained rates of each device.

Each is positive and fitted as its logarithm, with a Gaussian prior on that, where it stays without evidence. A share is
at most 1.
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
    """A coefficient to fit: its owner is a framework or a device, its name a field of `Timing` or a precision."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class Prior:
    """A log-normal prior."""

    value: float
    width: float  # standard deviation of the logarithm


PACE = Prior(0.92, 0.15)  # sustained over the rate of kernels timed alone
CHIPS = {  # devices with the same chip as another
    "h800": "h100-80gb",
    "a800": "a100-80gb",
    "a100-40gb": "a100-80gb",
    "v100-16gb": "v100-32gb",
    "gb300": "b300",
}
COMMON = "generic"  # the framework that all are fitted as at first
OWN = ("shard_ms",)  # coefficients that do not carry over to other frameworks
SPARSE = ("experts", "ep_exposed", "imbalance", "expert_us")  # of mixture-of-experts layers
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
Values = Mapping[Knob, Any]  # numbers, or arrays that broadcast with a setup's


def knobs(cases: Iterable[Case]) -> list[Knob]:
    """The coefficients that these cases depend on, sorted."""
    coefficients: dict[Knob, None] = {}
    for case in cases:
        coefficients.update(dict.fromkeys(of_case(case)))
    return sorted(coefficients)


def of_case(case: Case) -> list[Knob]:
    """The coefficients of a case: without those of experts in dense models, and of one framework in the common fit."""
    traits = [n for n in TRAITS if case.software != COMMON or n not in OWN]
    if case.module.routed is None:
        traits = [n for n in traits if n not in SPARSE]
    return [Knob(case.software, name) for name in traits] + [pace_of(case)]


def pace_of(case: Case) -> Knob:
    """The sustained rate that a case depends on, of its chip and precision."""
    return Knob(CHIPS.get(case.device, case.device), "fp8" if case.setup.dtype == "fp8" else "bf16")


def prior(coefficient: Knob) -> Prior:
    """The prior of a coefficient of a framework, or of a sustained rate."""
    return TRAITS.get(coefficient.name, PACE)


def with_traits(timing: Timing, owner: str, values: Values) -> Timing:
    """`timing` with the fitted coefficients of a framework."""
    fitted = {name: values[Knob(owner, name)] for name in TRAITS if Knob(owner, name) in values}
    fitted |= {name: np.minimum(1.0, fitted[name]) for name in SHARES if name in fitted}
    if "tp_exposed" in fitted:
        fitted["tp_exposed_backward"] = fitted["tp_exposed"]
    return changed(timing, **fitted)


def with_pace(rates: Rates, owner: str, values: Values) -> Rates:
    """`rates` with the fitted sustained rates of a device's chip."""
    chip = CHIPS.get(owner, owner)
    fitted = {name: values[Knob(chip, name)] for name in PACES if Knob(chip, name) in values}
    return changed(rates, sustained={**rates.sustained, **fitted})
