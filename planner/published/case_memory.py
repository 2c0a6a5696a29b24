"""Memory of the fullest rank of a published case."""

from dataclasses import replace
from functools import lru_cache

from planner.costs import LayoutColumns
from planner.costs.memory import Footprint, footprint, fullest_stage, in_flight
from planner.published.encoder_setups import feeding_encoder, setup_in_stages
from planner.published.memory_accounting import adjusted_accounting
from planner.published.published_case import CaseEncoder, PublishedCase
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.software import Software
from planner.specs.layers import Module


def case_accounting(case: PublishedCase, software: Software) -> MemoryCoefficients:
    """What its framework keeps in memory, with what its settings change in that."""
    return adjusted_accounting(
        case.settings_text, case.software, case.attention_kernel, software.accounting, case.month
    )


def fullest_footprint(case: PublishedCase, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """Memory of the fullest rank, with the encoders that are on it."""
    fullest = fullest_of_module(case.module, setup, accounted)
    in_stages = [each for each in case.encoders if each.place == "all_stages"]
    for each in in_stages:
        fullest = fullest.sharing_ranks(fullest_of_module(each.module, setup_in_stages(each, setup), accounted))
    first = [each for each in case.encoders if each.place == "first_stage"]
    if not first:
        return fullest
    with_encoders = footprint(case.module, setup, accounted, 0.0)
    for each in first:
        with_encoders = with_encoders.sharing_ranks(fed_footprint(each, setup, accounted))
    return with_encoders if float(with_encoders.total) > float(fullest.total) else fullest


def fed_footprint(encoder: CaseEncoder, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """Memory of an encoder on the first stage, which holds what it keeps of every micro-batch in flight there."""
    fed = feeding_encoder(encoder, setup)
    alone = fullest_of_module(encoder.module, fed.at, accounted)
    held = alone.activations * in_flight(setup, 0.0) if fed.flow.has_backward() else 0.0
    return replace(alone, activations=held)


@lru_cache(maxsize=4096)  # half of the records repeat a configuration, and each asks two or three times
def fullest_of_module(module: Module, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """The footprint of the fullest stage of one setup."""
    return fullest_stage(module, setup, accounted)
