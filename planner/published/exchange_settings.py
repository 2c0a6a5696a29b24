"""Overlap of exchanges, token dispatch and expert balance, as a published record's settings state them.

Megatron-LM reduces gradients beside no backward, and gathers updated weights beside no forward, unless it is told to
(`--overlap-grad-reduce` and `--overlap-param-gather` are off by default); before these arguments, and in
Megatron-LLaMA's tables, an overlapped distributed optimizer has its own name. NeMo calls them `overlap_grad_sync` and
`overlap_param_sync`. What a record does not say of its replicas is as its framework has it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.published.megatron_arguments import arguments_of
from planner.published.record_files import PublishedRecord
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
REDUCES, GATHERS = "overlap-grad-reduce", "overlap-param-gather"
REDUCES_SET = re.compile(r"overlap[-_ ]grad[-_ ](?:reduce|sync)\s*[=:]\s*(\w+)")
GATHERS_SET = re.compile(r"overlap[-_ ]param[-_ ](?:gather|sync)\s*[=:]\s*(\w+)")
SWITCHED_OFF = re.compile(r"\b(?:no|without) (?:dp|grad\w*) overlap")
ON = ("true", "on", "1")
NO_PREFETCH = re.compile(r"backward[-_ ]post|(?:no|without) (?:backward[-_ ])?prefetch")
PLAIN_OPTIMIZER = re.compile(r"(?<!overlapped)(?<!overlapped )distributed[-_ ]?optimizer")


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


def overlaps_replicas(record: PublishedRecord, settings: str, software: str) -> bool | None:
    """Whether replicas reduce gradients beside backward, by a record's settings (lower case); None: it does not say."""
    if SWITCHED_OFF.search(settings) or (software == "megatron" and PLAIN_OPTIMIZER.search(settings)):
        return False
    return is_switched(record, settings, software, REDUCES, REDUCES_SET)


def gathers_ahead(record: PublishedRecord, settings: str, software: str) -> bool | None:
    """Whether replicas gather updated weights beside the next forward; None: the record does not say."""
    return is_switched(record, settings, software, GATHERS, GATHERS_SET)


def is_switched(
    record: PublishedRecord, settings: str, software: str, argument: str, words: re.Pattern[str]
) -> bool | None:
    """A switch that Megatron's arguments state by having it, and settings of others in words."""
    arguments = arguments_of(record)
    if software == "megatron" and arguments:
        return arguments.is_set(argument)
    stated = words.search(settings)
    return stated[1] in ON if stated else None


def prefetches(settings: str) -> bool:
    """Whether sharded weights are gathered beside the backward of the layers that come before them. Told to wait for
    its gradients (BACKWARD_POST of PyTorch's FSDP), a gather stands behind their reduction on the same stream.
    """
    return not NO_PREFETCH.search(settings)
