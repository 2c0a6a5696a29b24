"""Coefficients that published step times can determine: some of each framework, and sustained rates of each device.

Each is positive and fitted as its logarithm, with a Gaussian prior on that, where it stays without evidence. A share is
at most 1.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from planner.calibrate.framework_facts import FRAMEWORKS
from planner.costs import CAST_PRECISIONS
from planner.published import PublishedCase
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import (
    AT_MOST_ONE,
    FRAMEWORK_PRIORS,
    SUSTAINED_PRIOR,
    Prior,
    TimingCoefficients,
)
from planner.specs.hardware.device_rates import DeviceRates


class CoefficientName(NamedTuple):
    """A coefficient to fit, of a framework (a field of `TimingCoefficients`) or of a device (a precision)."""

    owner: str
    name: str


# Devices with the chip of another, and their sustained rate over its. At a capped power: clocks go with its cube root
# where voltage follows them, and in proportion at the lowest voltage. Of what is left for the cores, without the 100 W
# that memory and idle circuits take, at 500 of 700 W: 0.87 and 0.67, of which 0.77 is the middle.
SAME_CHIP = {
    "h800": ("h100-80gb", 1.0),
    "torchtitan-h100-500w": ("h100-80gb", 0.77),
    "a800": ("a100-80gb", 1.0),
    "a100-40gb": ("a100-80gb", 1.0),
    "v100-16gb": ("v100-32gb", 1.0),
    "gb300": ("b300", 1.0),
}
GENERIC = "generic"  # the framework that all are fitted as at first
UPDATE_IN_TURN = [name for name, each in FRAMEWORKS.items() if each.timing.shard_ms > 0.0]  # each rank its part
NOT_SHARED = ("shard_ms",)  # coefficients that do not carry over to other frameworks
RELATIVE = ("attention", "cast", "shard_ms")  # to what is known of the framework, its kernel and its recipe
# One value for all frameworks: no source determines its own.
COMMON = (
    "attention",
    "pp_exposed",
    "jitter",
    "layer_us",
    "tp_us",
    "expert_us",
    "each_expert_us",
    "micro_batch_ms",
    "step_ms",
    "overlapped",
    "cast",
)
SUSTAINED_PRECISIONS = ("bf16", "fp8")
CoefficientValues = Mapping[CoefficientName, Any]  # numbers, or arrays that broadcast with a setup's


def has_experts(case: PublishedCase) -> bool:
    return case.module.routed_experts is not None


# What a case must have for its seconds to depend on a coefficient.
TOLD_BY: Mapping[str, Callable[[PublishedCase], bool]] = {
    "experts": has_experts,
    "expert_us": has_experts,
    "each_expert_us": has_experts,
    "ep_exposed": lambda case: has_experts(case) and case.setup.ep * case.setup.etp > 1,
    "imbalance": lambda case: has_experts(case) and case.setup.imbalance > 0.0,
    "cast": lambda case: case.setup.dtype in CAST_PRECISIONS,
    "tp_exposed": lambda case: case.setup.tp > 1,
    "tp_us": lambda case: case.setup.tp > 1,
    "pp_exposed": lambda case: case.setup.pp > 1,
    "overlapped": lambda case: bool(case.setup.overlap),
    "dp_window": lambda case: case.setup.data_ranks > 1,
    "shard_ms": lambda case: case.setup.zero > 0 and case.software in UPDATE_IN_TURN,
}


def coefficients_of_cases(cases: Iterable[PublishedCase]) -> list[CoefficientName]:
    """The coefficients that these cases depend on, sorted."""
    coefficients: dict[CoefficientName, None] = {}
    for case in cases:
        coefficients.update(dict.fromkeys(coefficients_of_case(case)))
    return sorted(coefficients)


def coefficients_of_case(case: PublishedCase) -> list[CoefficientName]:
    """The coefficients that the seconds of a case depend on."""
    own = [name for name in FRAMEWORK_PRIORS if name not in TOLD_BY or TOLD_BY[name](case)]
    named = [CoefficientName(GENERIC if name in COMMON else case.software, name) for name in own]
    named = [each for each in named if each.owner != GENERIC or each.name not in NOT_SHARED]
    return [*named, sustained_rate_of(case)]


def sustained_rate_of(case: PublishedCase) -> CoefficientName:
    """The sustained rate that a case depends on, of its chip and precision."""
    return CoefficientName(
        SAME_CHIP.get(case.device, (case.device, 1.0))[0], "fp8" if case.setup.dtype in CAST_PRECISIONS else "bf16"
    )


def prior_of(coefficient: CoefficientName) -> Prior:
    """The prior of a coefficient of a framework, or of a sustained rate."""
    return FRAMEWORK_PRIORS.get(coefficient.name, SUSTAINED_PRIOR)


def with_coefficients(timing: TimingCoefficients, owner: str, values: CoefficientValues) -> TimingCoefficients:
    """`timing` with the fitted coefficients of a framework, and common ones where it has none of its own."""
    fitted = {
        name: values[coefficient]
        for name in FRAMEWORK_PRIORS
        for coefficient in (CoefficientName(GENERIC, name), CoefficientName(owner, name))  # its own, where both are
        if coefficient in values
    }
    fitted |= {name: np.minimum(1.0, fitted[name]) for name in AT_MOST_ONE if name in fitted}
    for name in RELATIVE:
        if name in fitted:
            fitted[name] = getattr(timing, name) * fitted[name]
    if "tp_exposed" in fitted:
        fitted["tp_exposed_backward"] = fitted["tp_exposed"]
    return with_fields(timing, **fitted)


def with_sustained_rates(rates: DeviceRates, owner: str, values: CoefficientValues) -> DeviceRates:
    """`rates` with the fitted sustained rates of a device's chip."""
    chip, share = SAME_CHIP.get(owner, (owner, 1.0))
    fitted = {
        name: values[CoefficientName(chip, name)] * share
        for name in SUSTAINED_PRECISIONS
        if CoefficientName(chip, name) in values
    }
    return with_fields(rates, sustained={**rates.sustained, **fitted})
