"""Memory of the fullest rank of a published case."""

from functools import lru_cache

from planner.costs import LayoutColumns
from planner.costs.memory import Footprint, fullest_stage
from planner.published.case_seconds import encoder_setup
from planner.published.memory_accounting import adjusted_accounting
from planner.published.published_case import PublishedCase
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.software import Software
from planner.specs.layers import Module


def case_accounting(case: PublishedCase, software: Software) -> MemoryCoefficients:
    """What its framework keeps in memory, with what its settings change in that."""
    return adjusted_accounting(
        case.settings_text, case.software, case.attention_kernel, software.accounting, case.month
    )


def fullest_footprint(case: PublishedCase, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """Memory of the fullest rank, with the encoder on the same rank."""
    decoder = fullest_of_module(case.module, setup, accounted)
    return (
        decoder.sharing_ranks(fullest_of_module(case.encoder.module, encoder_setup(case.encoder, setup), accounted))
        if case.encoder
        else decoder
    )


@lru_cache(maxsize=4096)  # half of the records repeat a configuration, and each asks two or three times
def fullest_of_module(module: Module, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """The footprint of the fullest stage of one setup."""
    return fullest_stage(module, setup, accounted)
