"""Whether a published record's replicas reduce gradients beside its backward passes, as its settings say.

Megatron-LM does not unless it is told to (`--overlap-grad-reduce` is off by default); before that argument, and in
Megatron-LLaMA's tables, an overlapped distributed optimizer has its own name. Other frameworks do.
"""

import re

from planner.published.megatron_arguments import arguments_of
from planner.published.record_files import PublishedRecord

ARGUMENT = "overlap-grad-reduce"
SWITCHED_OFF = re.compile(
    r"overlap[-_ ]grad[-_ ]reduce\s*[=:]\s*(?:false|off|0)\b|\b(?:no|without) (?:dp|grad\w*) overlap"
)
NO_PREFETCH = re.compile(r"backward[-_ ]post|(?:no|without) (?:backward[-_ ])?prefetch")
PLAIN_OPTIMIZER = re.compile(r"(?<!overlapped)(?<!overlapped )distributed[-_ ]?optimizer")


def overlaps_replicas(record: PublishedRecord, settings: str, software: str) -> bool:
    """From a record and its settings (free text, in lower case)."""
    if SWITCHED_OFF.search(settings):
        return False
    if software != "megatron":
        return True
    arguments = arguments_of(record)
    return arguments.is_set(ARGUMENT) if arguments else not PLAIN_OPTIMIZER.search(settings)


def prefetches(settings: str) -> bool:
    """Whether sharded weights are gathered beside the backward of the layers that come before them. Told to wait for
    its gradients (BACKWARD_POST of PyTorch's FSDP), a gather stands behind their reduction on the same stream.
    """
    return not NO_PREFETCH.search(settings)
