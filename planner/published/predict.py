"""Predictions of published cases from the shipped profiles of their devices and frameworks."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.costs.columns import Columns
from planner.costs.compute.assumed import spread_of
from planner.costs.compute.machine import Machine
from planner.costs.cost import trust
from planner.costs.memory.footprint import Footprint, footprint, peak, probability
from planner.published.accounting import accounting
from planner.published.case import Case, Prediction
from planner.published.machinery import machine
from planner.published.priced import alike, encoded, seconds, trained
from planner.specs import library
from planner.specs.accounting import Accounting
from planner.specs.base import changed
from planner.specs.profile import Profile
from planner.specs.software import Software
from planner.units import GIB

# Which figure of the allocator frameworks print as peak memory, where it is not the allocated bytes.
REPORTED = {"torchtitan": "reserved", "primus": "total"}
NAMED = re.compile(r"core[ _-]?att")
OFFLOADED = re.compile(r"activation[- ]offload|offload\w* (?:of )?activations")
Parts = tuple[Profile, Software]


def predict(cases: Sequence[Case]) -> list[Prediction]:
    """Seconds, memory and spread of each case, in order. Raises InputError for a profile that cannot be read."""
    parts = {(case.device, case.software): shipped(case) for case in cases}
    step = seconds(alike(cases), len(cases), machine_of(parts))
    return [
        predicted(case, parts[case.device, case.software], float(each)) for case, each in zip(cases, step, strict=True)
    ]


def shipped(case: Case) -> Parts:
    """The device's profile and the framework's coefficients. Raises InputError."""
    where = f"{case.origin.file}:{case.origin.line}"
    profile, _ = library.read(case.device, Profile, where=where)
    software, _ = library.read(case.software, Software, where=where)
    return profile, software


def machine_of(parts: dict[tuple[str, str], Parts]) -> Callable[[Case], Machine]:
    """The machine of a case, as a function over these profiles."""
    """The machine of a case, as a function over these profiles."""
    return lambda case: machine(case, *parts[case.device, case.software])


def predicted(case: Case, parts: Parts, step: float) -> Prediction:
    """The prediction of a case; its memory is that of the rank the record names, its OOM probability the fullest's."""
    profile, software = parts
    software = changed(software, accounting=accounting(case.settings, case.software, software.accounting))
    setup, accounted = trained(case), software.accounting
    fullest = held(case, setup, accounted)
    least = held(case, least_kept(case, setup), accounted)
    chance = probability(least.total, case.device_bytes or profile.device.memory_gib * GIB, accounted.spread)
    return Prediction(
        seconds=step,
        spread=spread_of(software.spread, profile.rates),
        memory_bytes=float(told(case, software, fullest)),
        oom_probability=float(chance),
        source=trust([profile.rates.source if profile.rates else "analytic", "fitted"]),
    )


def held(case: Case, setup: Columns, accounted: Accounting) -> Footprint:
    """Memory of the fullest rank, with the encoder on the same rank."""
    decoder = peak(case.module, setup, accounted)
    return (
        decoder.beside(peak(case.encoder.module, encoded(case.encoder, setup), accounted)) if case.encoder else decoder
    )


def least_kept(case: Case, setup: Columns) -> Columns:
    """The setup that needs the least memory of those a record may describe.

    Where it states neither recomputation nor offload, every layer may have been recomputed, as anybody would before
    running out of memory. Selective recomputation without named modules states as little: flash attention recomputes by
    itself.
    """
    vague = setup.parts == {"attention"} and not NAMED.search(case.settings)
    unsaid = "recompute" in (*case.defaulted, *case.assumed) or vague or OFFLOADED.search(case.settings)
    return replace(setup, full=1.0) if unsaid else setup


def told(case: Case, software: Software, fullest: Footprint) -> float:
    """Bytes of the rank that the record's figure is of, as its framework counts them."""
    setup = trained(case)
    stages = {"first": 0.0, "last": float(setup.pp) - 1.0}
    if case.memory_rank in stages and case.encoder is None:
        fullest = footprint(case.module, setup, software.accounting, stages[case.memory_rank])
    return float(getattr(fullest, REPORTED.get(case.software, "allocated")))
