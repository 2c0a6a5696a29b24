"""Overlap, token dispatch and expert balance, as a published record's settings state them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.specs.layers import Module
from planner.specs.parallelism import Dispatch, Overlapped

# Tensor-parallel overlap in chunks of the matrix product (torchtitan's async TP, Transformer Engine's userbuffers).
TP = re.compile(r"async[- _]?(?:tp|tensor)|tp[-_ ]comm[-_ ]overlap|(?:zero/|/)tp overlap|userbuffers")
# Expert all-to-all of one micro-batch overlapped with another's compute.
EP = re.compile(r"1f1b overlap|(?:ep|a2a|moe|alltoall)[-_ ]overlap|overlap[-_ ]moe[-_ ]expert|dualpipe|dual[- ]?batch")
NODES = re.compile(r"deep[-_ ]?ep|hybrid[-_ ]?ep")
OFF = re.compile(r"\s*(?:=\s*)?(?:off|false|0|no|none|disabled)\b")
FORCED = re.compile(r"forced?[-_ ](?:router[-_ ])?(?:load[-_ ])?balanc|balanced routing|router[-_ ]force")
PLACED = re.compile(r"method=laer")  # LAER-MoE places expert replicas by their load
UNEVEN = re.compile(r"(?:load|expert)[-_ ]imbalance")
LEARNT = re.compile(r"aux(?:iliary)?[-_ ]?loss|dropless")  # a learnt router, whose load is uneven


class Said(NamedTuple):
    """Overlapped communication, the kind of token dispatch, and whether experts get equal loads."""

    """Overlapped communication, the kind of token dispatch, and whether experts get equal loads."""

    overlap: frozenset[Overlapped]
    dispatch: Dispatch
    balanced: bool


def said(settings: str, module: Module) -> Said:
    """From a record's settings (free text, in lower case): by default nothing overlaps and experts are balanced."""
    kinds: Mapping[Overlapped, re.Pattern[str]] = {"tp": TP, "ep": EP}
    overlap = frozenset[Overlapped](kind for kind, words in kinds.items() if on(words, settings))
    forced = any(words.search(settings) for words in (FORCED, PLACED))
    learnt = LEARNT.search(settings) and not forced
    even = module.routed is None or not (learnt or UNEVEN.search(settings))
    return Said(overlap, "node_level" if NODES.search(settings) else "all_to_all", even)


def on(words: re.Pattern[str], settings: str) -> bool:
    """Whether the pattern matches and is not followed by a negation."""
    match = words.search(settings)
    return bool(match) and not OFF.match(settings, match.end() if match else 0)
