"""Whether a published record's replicas reduce gradients beside its backward passes, and gather updated weights beside
its next forward, as its settings say.

Megatron-LM does neither unless it is told to (`--overlap-grad-reduce` and `--overlap-param-gather` are off by default);
before these arguments, and in Megatron-LLaMA's tables, an overlapped distributed optimizer has its own name. NeMo calls
them `overlap_grad_sync` and `overlap_param_sync`. What a record does not say is as its framework has it.
"""

import re

from planner.published.megatron_arguments import arguments_of
from planner.published.record_files import PublishedRecord

REDUCES, GATHERS = "overlap-grad-reduce", "overlap-param-gather"
REDUCES_SET = re.compile(r"overlap[-_ ]grad[-_ ](?:reduce|sync)\s*[=:]\s*(\w+)")
GATHERS_SET = re.compile(r"overlap[-_ ]param[-_ ](?:gather|sync)\s*[=:]\s*(\w+)")
SWITCHED_OFF = re.compile(r"\b(?:no|without) (?:dp|grad\w*) overlap")
ON = ("true", "on", "1")
NO_PREFETCH = re.compile(r"backward[-_ ]post|(?:no|without) (?:backward[-_ ])?prefetch")
PLAIN_OPTIMIZER = re.compile(r"(?<!overlapped)(?<!overlapped )distributed[-_ ]?optimizer")


def overlaps_replicas(record: PublishedRecord, settings: str, software: str) -> bool | None:
    """From a record and its settings (free text, in lower case); None: it does not say."""
    if SWITCHED_OFF.search(settings) or (software == "megatron" and PLAIN_OPTIMIZER.search(settings)):
        return False
    return is_switched(record, settings, software, REDUCES, REDUCES_SET)


def gathers_ahead(record: PublishedRecord, settings: str, software: str) -> bool | None:
    """The same of updated weights, of replicas that overlap at all."""
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
