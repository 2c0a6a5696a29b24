"""What a row's words change in its framework's accounting of memory."""

import re

from planner.specs.accounting import Accounting
from planner.specs.base import changed

SEGMENTS = re.compile(r"expandable[_ -]?segments?(?!\s*[:=]\s*(?:false|off|0))")
NATIVE_LOSS = re.compile(r"cross[-_ ]entropy[-_ ](?:loss[-_ ])?fusion[-_ ]*(?:impl)?\s*[=: ]*(?:true;?\s*)?native")
COMPILED = re.compile(r"torch\.compile|\bcompiled?\b|inductor")
EAGER = re.compile(r"\beager\b|no compile|without compile|compile\s*[=:]\s*(?:n\b|no|false|off)")
NATIVE_LOGIT_BYTES = 10.0  # exponentials beside the float32 copy
COMPILED_LOGIT_BYTES = 13.0


def accounting(settings: str, software: str, usual: Accounting) -> Accounting:
    """`settings`: what the row says in words, in lower case."""
    if SEGMENTS.search(settings):
        usual = changed(usual, fragmentation=0.0)
    if software == "megatron" and NATIVE_LOSS.search(settings):
        usual = changed(usual, logit_bytes=NATIVE_LOGIT_BYTES)
    if software == "torchtitan" and COMPILED.search(settings) and not EAGER.search(settings):
        usual = changed(usual, logit_bytes=COMPILED_LOGIT_BYTES, fused=True)
    return usual
