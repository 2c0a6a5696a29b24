"""Coefficients that published step times can determine: some of each framework, and sustained rates of each device.

Each is positive and fitted as its logarithm, with a Gaussian prior on that, where it stays without evidence. A share is
at most 1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner.published import PublishedCase
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.device_rates import DeviceRates


class CoefficientName(NamedTuple):
    """A coefficient to fit, of a framework (a field of `TimingCoefficients`) or of a device (a precision)."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class Prior:
    """A log-normal prior."""

    value: float
    width: float  # standard deviation of the logarithm


SUSTAINED_PRIOR = Prior(0.92, 0.15)  # sustained over the rate of kernels timed alone
SAME_CHIP = {  # devices with the same chip as another
    "h800": "h100-80gb",
    "a800": "a100-80gb",
    "a100-40gb": "a100-80gb",
    "v100-16gb": "v100-32gb",
    "gb300": "b300",
}
GENERIC = "generic"  # the framework that all are fitted as at first
NOT_SHARED = ("shard_ms",)  # coefficients that do not carry over to other frameworks
EXPERT_COEFFICIENTS = ("experts", "ep_exposed", "imbalance", "expert_us")  # of mixture-of-experts layers
SUSTAINED_PRECISIONS = ("bf16", "fp8")
FRAMEWORK_PRIORS = {
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
AT_MOST_ONE = ("overlapped", "cast", "tp_exposed", "ep_exposed", "pp_exposed", "dp_window")
CoefficientValues = Mapping[CoefficientName, Any]  # numbers, or arrays that broadcast with a setup's


def coefficients_of_cases(cases: Iterable[PublishedCase]) -> list[CoefficientName]:
    """The coefficients that these cases depend on, sorted."""
    coefficients: dict[CoefficientName, None] = {}
    for case in cases:
        coefficients.update(dict.fromkeys(coefficients_of_case(case)))
    return sorted(coefficients)


def coefficients_of_case(case: PublishedCase) -> list[CoefficientName]:
    """The coefficients of a case: without those of experts in dense models, and of one framework in the common fit."""
    names = [n for n in FRAMEWORK_PRIORS if case.software != GENERIC or n not in NOT_SHARED]
    if case.module.routed_experts is None:
        names = [n for n in names if n not in EXPERT_COEFFICIENTS]
    return [CoefficientName(case.software, name) for name in names] + [sustained_rate_of(case)]


def sustained_rate_of(case: PublishedCase) -> CoefficientName:
    """The sustained rate that a case depends on, of its chip and precision."""
    return CoefficientName(SAME_CHIP.get(case.device, case.device), "fp8" if case.setup.dtype == "fp8" else "bf16")


def prior_of(coefficient: CoefficientName) -> Prior:
    """The prior of a coefficient of a framework, or of a sustained rate."""
    return FRAMEWORK_PRIORS.get(coefficient.name, SUSTAINED_PRIOR)


def with_coefficients(timing: TimingCoefficients, owner: str, values: CoefficientValues) -> TimingCoefficients:
    """`timing` with the fitted coefficients of a framework."""
    fitted = {
        name: values[CoefficientName(owner, name)]
        for name in FRAMEWORK_PRIORS
        if CoefficientName(owner, name) in values
    }
    fitted |= {name: np.minimum(1.0, fitted[name]) for name in AT_MOST_ONE if name in fitted}
    if "tp_exposed" in fitted:
        fitted["tp_exposed_backward"] = fitted["tp_exposed"]
    return with_fields(timing, **fitted)


def with_sustained_rates(rates: DeviceRates, owner: str, values: CoefficientValues) -> DeviceRates:
    """`rates` with the fitted sustained rates of a device's chip."""
    chip = SAME_CHIP.get(owner, owner)
    fitted = {
        name: values[CoefficientName(chip, name)]
        for name in SUSTAINED_PRECISIONS
        if CoefficientName(chip, name) in values
    }
    return with_fields(rates, sustained={**rates.sustained, **fitted})
