"""Predictions of published cases from the shipped profiles of their devices and frameworks."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot

from planner.costs import LayoutColumns, least_trusted, peak_flops
from planner.costs.compute import step_spread
from planner.costs.memory import Footprint, footprint, oom_chance
from planner.published.case_memory import case_accounting, fullest_footprint
from planner.published.case_seconds import group_seconds, log_seconds
from planner.published.possible_setups import OFFLOADED, unstated_spread
from planner.published.published_case import CasePrediction, PublishedCase
from planner.published.shipped_profiles import device_profile, framework_software, machine_as_shipped
from planner.scoring import require_possible
from planner.specs.base import with_fields
from planner.specs.framework.software import Software
from planner.specs.shapes import step_flops
from planner.units import GIB

# Which figure of the allocator frameworks print as peak memory, where it is not the allocated bytes.
REPORTED_FIGURE = {"torchtitan": "reserved", "primus": "total"}
NORMAL_80 = 1.2816  # half-width of a normal's 80 % interval, in standard deviations
NAMED_MODULES = re.compile(r"core[ _-]?att")


def predict_cases(cases: Sequence[PublishedCase]) -> list[CasePrediction]:
    """Seconds, memory and spread of each case, in order. Raises InputError for a profile that cannot be read."""
    mean, deviation = log_seconds(cases, lambda group, _: group_seconds(group, machine_as_shipped(group.first)))
    return [
        predict_case(case, exp(each), NORMAL_80 * apart)
        for case, each, apart in zip(cases, mean.tolist(), deviation.tolist(), strict=True)
    ]


def predict_case(case: PublishedCase, step: float, apart: float) -> CasePrediction:
    """The prediction of a case, whose possible setups are `apart` (half-width of an 80 % interval); its memory is that
    of the rank the record names, its OOM probability the fullest's.
    """
    profile, software = device_profile(case.device), framework_software(case.software)
    software = with_fields(software, accounting=case_accounting(case, software))
    setup, accounted = case.setup, software.accounting
    fullest = fullest_footprint(case, setup, accounted)
    smallest = least_memory_setup(case, setup)
    needed = fullest if smallest is setup else fullest_footprint(case, smallest, accounted)
    chance = oom_chance(needed.total, case.device_bytes or profile.device.memory_gib * GIB, accounted.spread)
    place = f"{case.origin.file}:{case.origin.line}"
    flops = step_flops(case.module, (round(float(setup.seq)),)) * float(setup.batch)  # of its encoders none
    least = flops / (peak_flops(profile.device, setup.dtype) * case.ranks)
    require_possible({"the step's FLOPs at the devices' peak, in seconds,": least}, place, step)
    require_possible({"chance of running out of memory": float(chance)}, place, whole=1.0)
    memory = float(reported_bytes(case, software, fullest))
    require_possible({"memory": memory}, place)
    return CasePrediction(
        seconds=step,
        spread=hypot(step_spread(software.spread, profile.rates, case.setup.dtype), unstated_spread(case), apart),
        memory_bytes=memory,
        oom_probability=float(chance),
        source=least_trusted([profile.rates.source if profile.rates else "analytic", "fitted"]),
    )


def least_memory_setup(case: PublishedCase, setup: LayoutColumns) -> LayoutColumns:
    """The setup that needs the least memory of those a record may describe.

    Where it states neither recomputation nor offload, every layer may have been recomputed, as anybody would before
    running out of memory. Selective recomputation without named modules states as little: flash attention recomputes by
    itself.
    """
    vague = setup.recomputed_parts == {"attention"} and not NAMED_MODULES.search(case.settings_text)
    unsaid = "recompute" in (*case.defaulted, *case.assumed) or vague or OFFLOADED.search(case.settings_text)
    return replace(setup, full_recompute=1.0) if unsaid else setup


def reported_bytes(case: PublishedCase, software: Software, fullest: Footprint) -> float:
    """Bytes of the rank that the record's figure is of, as its framework counts them."""
    setup = case.setup
    stages = {"first": 0.0, "last": float(setup.pp) - 1.0}
    if case.memory_rank in stages and not case.encoders:
        fullest = footprint(case.module, setup, software.accounting, stages[case.memory_rank])
    return float(getattr(fullest, case.memory_figure or REPORTED_FIGURE.get(case.software, "allocated")))
