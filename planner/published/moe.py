"""What a row's words say of exchanges and of experts: what runs beside compute, how tokens go, if they are even."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.specs.layers import Module
from planner.specs.parallelism import Dispatch, Overlapped

# Pieces of matrix products beside pieces of the exchange (torchtitan's async TP, Transformer Engine's userbuffers).
TP = re.compile(r"async[- _]?(?:tp|tensor)|tp[-_ ]comm[-_ ]overlap|(?:zero/|/)tp overlap|userbuffers")
# One micro-batch's exchanges beside another one's compute.
EP = re.compile(r"1f1b overlap|(?:ep|a2a|moe|alltoall)[-_ ]overlap|overlap[-_ ]moe[-_ ]expert|dualpipe|dual[- ]?batch")
NODES = re.compile(r"deep[-_ ]?ep|hybrid[-_ ]?ep")
OFF = re.compile(r"\s*(?:=\s*)?(?:off|false|0|no|none|disabled)\b")
FORCED = re.compile(r"forced?[-_ ](?:router[-_ ])?(?:load[-_ ])?balanc|balanced routing|router[-_ ]force")
PLACED = re.compile(r"method=laer")  # copies of experts are placed by the tokens that they get
UNEVEN = re.compile(r"(?:load|expert)[-_ ]imbalance")
LEARNT = re.compile(r"aux(?:iliary)?[-_ ]?loss|dropless")  # the router sends tokens where it likes


class Said(NamedTuple):
    overlap: frozenset[Overlapped]
    dispatch: Dispatch
    balanced: bool


def said(settings: str, module: Module) -> Said:
    """`settings`: what the record says in words, in lower case; what is not said is off, and experts are even."""
    kinds: Mapping[Overlapped, re.Pattern[str]] = {"tp": TP, "ep": EP}
    overlap = frozenset[Overlapped](kind for kind, words in kinds.items() if on(words, settings))
    forced = any(words.search(settings) for words in (FORCED, PLACED))
    learnt = LEARNT.search(settings) and not forced
    even = module.routed is None or not (learnt or UNEVEN.search(settings))
    return Said(overlap, "node_level" if NODES.search(settings) else "all_to_all", even)


def on(words: re.Pattern[str], settings: str) -> bool:
    """Whether these words are there and not followed by a no."""
    found = words.search(settings)
    return bool(found) and not OFF.match(settings, found.end() if found else 0)
