"""What a record leaves unsaid and nothing implies: every setup that it may have had, equally likely.

Seconds are the geometric mean over these setups, and intervals are as much wider as the setups differ. Of recomputation
one is taken: a run that completed and does not say whether it recomputes did not, where it fits without or says that it
offloads activations instead. Where it would not fit, any share of layers from the least that fits to all of them is
possible, and their middle is taken.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns
from planner.published.case_memory import case_accounting, fullest_footprint
from planner.published.published_case import PublishedCase
from planner.published.record_setup import IMPLAUSIBLE_BUBBLE
from planner.published.shipped_profiles import device_profile, framework_software
from planner.units import GIB

Logs = NDArray[np.float64]
Indices = NDArray[np.int64]
MICRO_BATCHES = (1, 2, 4)  # sequences of a micro-batch where none is stated
OFFLOADED = re.compile(r"activation[- ]offload|offload\w* (?:of )?activations")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of layers, tried in this order
# Half of the logarithm by which recomputing everything lengthens a step: forward is a third of it.
RECOMPUTE_SPREAD = log(4 / 3) / 2


def with_other_setups(case: PublishedCase) -> PublishedCase:
    """The case with the other setups that its record may describe: experts sharded over tp or not, where Megatron's
    default is not known to have been kept, micro-batches of a few sequences, and interleaving, where they fit.
    Raises InputError for a shipped file that cannot be read.
    """
    setups = interleavings(case) or [case.setup, *case.other_setups]
    if "etp" in case.assumed:
        setups += [replace(each, etp=other) for each in setups for other in other_etps(case)]
    if "mbs" in case.assumed:
        setups += [replace(each, micro_batch=size) for each in setups for size in other_sizes(each)]
    others = tuple(each for each in setups[1:] if fits_device(case, each))
    return replace(case, setup=setups[0], other_setups=others)


def interleavings(case: PublishedCase) -> list[LayoutColumns]:
    """With numbers of chunks that leave a plausible bubble, where it is open whether there are several; else empty."""
    setup, chunks = case.setup, int(case.module.layers / case.setup.pp)
    idle = (setup.pp - 1) / setup.micro_batches
    if "vpp" not in case.assumed or setup.micro_batches % setup.pp:
        return []
    possible = (vpp for vpp in range(2, chunks + 1) if case.module.layers % (setup.pp * vpp) == 0)
    return [replace(setup, vpp=vpp, schedule="interleaved") for vpp in possible if idle / vpp <= IMPLAUSIBLE_BUBBLE]


def other_etps(case: PublishedCase) -> list[int]:
    """The other of etp = tp and etp = 1, where the ranks of a stage are enough."""
    setup = case.setup
    tp, ranks = int(setup.tp), int(setup.ranks / setup.pp)
    other = 1 if setup.etp > 1 else tp
    fits = ranks % (int(setup.ep) * other) == 0
    return [other] if case.software == "megatron" and other != setup.etp and fits else []


def other_sizes(setup: LayoutColumns) -> list[int]:
    """Other sizes of micro-batches into which a replica's sequences divide, each stage with one at least."""
    if setup.micro_batch % 1:  # of unequal sequences, for which equal ones stand
        return []
    own = int(setup.micro_batches * setup.micro_batch)
    least = int(setup.pp)
    return [size for size in MICRO_BATCHES if size != setup.micro_batch and own % size == 0 and own // size >= least]


def each_setup(cases: Sequence[PublishedCase]) -> tuple[list[PublishedCase], Indices]:
    """Every case once with each of its setups, and the index of the case that each of these is."""
    pairs = [
        (replace(case, setup=setup, other_setups=()), number)
        for number, case in enumerate(cases)
        for setup in (case.setup, *case.other_setups)
    ]
    return [case for case, _ in pairs], np.array([number for _, number in pairs], dtype=np.int64)


def setup_shares(cases: Sequence[PublishedCase]) -> Logs:
    """The share (cases,) of each setup of a case."""
    return 1.0 / np.array([1.0 + len(case.other_setups) for case in cases])


def mean_over_setups(logs: Logs, owners: Indices) -> tuple[Logs, Logs]:
    """The mean and the standard deviation (cases,) of logarithms (setups,) over the setups of each case."""
    count = np.bincount(owners)
    mean = np.bincount(owners, logs) / count
    return mean, np.sqrt(np.bincount(owners, (logs - mean[owners]) ** 2) / count)


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
