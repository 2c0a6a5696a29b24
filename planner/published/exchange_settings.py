"""Overlap, token dispatch and expert balance, as a published record's settings state them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.specs.layers import Module
from planner.specs.parallelism import Dispatch, OverlappedKind

# Tensor-parallel overlap in chunks of the matrix product (torchtitan's async TP, Transformer Engine's userbuffers).
TP_OVERLAP = re.compile(r"async[- _]?(?:tp|tensor)|tp[-_ ]comm[-_ ]overlap|(?:zero/|/)tp overlap|userbuffers")
# Expert all-to-all of one micro-batch overlapped with another's compute.
EP_OVERLAP = re.compile(
    r"1f1b overlap|(?:ep|a2a|moe|alltoall)[-_ ]overlap|overlap[-_ ]moe[-_ ]expert|dualpipe|dual[- ]?batch"
)
NODE_LEVEL_DISPATCH = re.compile(r"deep[-_ ]?ep|hybrid[-_ ]?ep")
NEGATION = re.compile(r"\s*(?:=\s*)?(?:off|false|0|no|none|disabled)\b")
FORCED_BALANCE = re.compile(r"forced?[-_ ](?:router[-_ ])?(?:load[-_ ])?balanc|balanced routing|router[-_ ]force")
# Systems that place copies of experts by their load: for each micro-batch (LAER-MoE), or by what the last steps had.
EXPERT_PLACEMENT = re.compile(r"\blaer")
LATER_PLACEMENT = re.compile(r"flex[-_]?moe")
# What placement by the last steps leaves of imbalance: between none and all of it, which is not known.
LEFT_BY_LATER_PLACEMENT = 0.5
EXPERT_IMBALANCE = re.compile(r"(?:load|expert)[-_ ]imbalance")
LEARNT_ROUTER = re.compile(r"aux(?:iliary)?[-_ ]?loss|dropless")  # a learnt router, whose load is uneven


class ExchangeSettings(NamedTuple):
    """Overlapped communication, the kind of token dispatch, and how uneven the loads of experts are."""

    overlap: frozenset[OverlappedKind]
    dispatch: Dispatch
    imbalance: float  # of a learnt router's, what reaches the experts' ranks


def exchange_settings(settings: str, module: Module) -> ExchangeSettings:
    """From a record's settings (free text, in lower case): by default nothing overlaps and experts are balanced."""
    kinds: Mapping[OverlappedKind, re.Pattern[str]] = {"tp": TP_OVERLAP, "ep": EP_OVERLAP}
    overlap = frozenset[OverlappedKind](kind for kind, words in kinds.items() if is_enabled(words, settings))
    forced = any(words.search(settings) for words in (FORCED_BALANCE, EXPERT_PLACEMENT))
    learnt = LEARNT_ROUTER.search(settings) and not forced
    uneven = module.routed_experts is not None and (learnt or EXPERT_IMBALANCE.search(settings))
    left = LEFT_BY_LATER_PLACEMENT if LATER_PLACEMENT.search(settings) else 1.0
    dispatch: Dispatch = "node_level" if NODE_LEVEL_DISPATCH.search(settings) else "all_to_all"
    return ExchangeSettings(overlap, dispatch, left if uneven else 0.0)


def is_enabled(words: re.Pattern[str], settings: str) -> bool:
    """Whether the pattern matches and is not followed by a negation."""
    match = words.search(settings)
    return bool(match) and not NEGATION.match(settings, match.end() if match else 0)
