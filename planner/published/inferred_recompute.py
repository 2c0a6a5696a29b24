"""Recomputation of runs that completed and do not say whether they recompute: none, where they fit without, or say that
they offload activations instead.

Where they would not, any share of layers from the least that fits to all of them is possible: their middle is taken.
"""

import re
from dataclasses import replace
from math import log

from planner.costs import LayoutColumns
from planner.published.case_memory import case_accounting, fullest_footprint
from planner.published.published_case import PublishedCase
from planner.published.shipped_profiles import device_profile, framework_software
from planner.units import GIB

OFFLOADED = re.compile(r"activation[- ]offload|offload\w* (?:of )?activations")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of layers, tried in this order
# Half of the logarithm by which recomputing everything lengthens a step: forward is a third of it.
RECOMPUTE_SPREAD = log(4 / 3) / 2


def with_inferred_recompute(case: PublishedCase) -> PublishedCase:
    """The case with the share of recomputed layers that it must have had; as it is where its record says it. Raises
    InputError for a shipped file that cannot be read.
    """
    if "recompute" not in case.assumed or case.oom or OFFLOADED.search(case.settings_text):
        return case
    least = least_share_that_fits(case)
    return replace(case, setup=replace(case.setup, full_recompute=(least + 1.0) / 2.0)) if least else case


def least_share_that_fits(case: PublishedCase) -> float:
    """The least share of recomputed layers with which the fullest rank fits its device; all where none does."""
    setups = ((share, replace(case.setup, full_recompute=share)) for share in SHARES)
    return next((share for share, setup in setups if fits_device(case, setup)), SHARES[-1])


def fits_device(case: PublishedCase, setup: LayoutColumns) -> bool:
    """Whether the fullest rank of this setup fits its device. Raises InputError for a shipped file that cannot be
    read.
    """
    accounting = case_accounting(case, framework_software(case.software))
    room = case.device_bytes or device_profile(case.device).device.memory_gib * GIB
    return bool(fullest_footprint(case, setup, accounting).total <= room)


def unstated_spread(case: PublishedCase) -> float:
    """What an interval is wider by, as an independent error, for recomputation that no record states."""
    return RECOMPUTE_SPREAD if "recompute" in case.assumed else 0.0
