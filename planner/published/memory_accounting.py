"""Changes to a framework's memory accounting that the settings of a published record state."""

import re

from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients

SEGMENTS = re.compile(r"expandable[_ -]?segments?(?!\s*[:=]\s*(?:false|off|0))")
NOT_EXPANDABLE = re.compile(
    r"(?:without|no) expandable[_ -]?segments?|expandable[_ -]?segments?\s*[:=]\s*(?:false|off|0)"
)
NATIVE_LOSS = re.compile(r"cross[-_ ]entropy[-_ ](?:loss[-_ ])?fusion[-_ ]*(?:impl)?\s*[=: ]*(?:true;?\s*)?native")
ARGUMENTS = re.compile(r"transformer-impl\s*=")  # Megatron-LM's own, of which dropout of 0.1 is the default
NO_DROPOUT = re.compile(r"hidden-dropout\s*=\s*0?\.?0*(?:[;|\s]|$)|no-dropout")
DETERMINISTIC = re.compile(r"deterministic-mode\s*=\s*true")  # whose kernels take next to no workspace: fitted
DETERMINISTIC_WORKSPACE_GIB = 0.05
UNFUSED = re.compile(r"attention-backend\s*=\s*(?:unfused|local)\b")  # attention with its matrix in memory
COMPILED = re.compile(r"torch\.compile|\bcompiled?\b|inductor")
EAGER = re.compile(r"\beager\b|no compile|without compile|compile\s*[=:]\s*(?:n\b|no|false|off)")
# Fitted: it separates the runs of Megatron-Bridge's ablation that ran out of memory from those that did not.
FRAGMENTED = 0.42
NATIVE_LOGIT_BYTES = 10.0  # exponentials beside the float32 copy
COMPILED_LOGIT_BYTES = 13.0


def adjusted_accounting(settings: str, software: str, accounting: MemoryCoefficients) -> MemoryCoefficients:
    """The framework's coefficients with what the record's settings (free text, in lower case) change in them."""
    if NOT_EXPANDABLE.search(settings):
        accounting = with_fields(accounting, fragmentation=FRAGMENTED)
    elif SEGMENTS.search(settings):
        accounting = with_fields(accounting, fragmentation=0.0)
    if software == "megatron" and ARGUMENTS.search(settings) and not NO_DROPOUT.search(settings):
        accounting = with_fields(accounting, dropout=True)
    if software == "megatron" and UNFUSED.search(settings):
        accounting = with_fields(accounting, flash=False)
    if software == "megatron" and DETERMINISTIC.search(settings):
        accounting = with_fields(accounting, workspace_gib=DETERMINISTIC_WORKSPACE_GIB)
    if software == "megatron" and NATIVE_LOSS.search(settings):
        accounting = with_fields(accounting, logit_bytes=NATIVE_LOGIT_BYTES)
    if software == "torchtitan" and COMPILED.search(settings) and not EAGER.search(settings):
        accounting = with_fields(accounting, logit_bytes=COMPILED_LOGIT_BYTES, fused=True)
    return accounting
