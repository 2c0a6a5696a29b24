"""Memory of the fullest rank of a published case: its framework's accounting, with what its settings change in that."""

import re
from dataclasses import replace
from functools import lru_cache

from planner.costs import LayoutColumns
from planner.costs.memory import FRAGMENTED, Footprint, footprint, fullest_stage, in_flight
from planner.published.published_case import CaseEncoder, PublishedCase
from planner.specs.base import with_fields
from planner.specs.framework.dated_kernels import AttentionKernel, adam_bytes
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.software import Software
from planner.specs.layers import Module

SEGMENTS = re.compile(r"expandable[_ -]?segments?(?!\s*[:=]\s*(?:false|off|0))")
NOT_EXPANDABLE = re.compile(
    r"(?:without|no) expandable[_ -]?segments?|expandable[_ -]?segments?\s*[:=]\s*(?:false|off|0)"
)
# How the loss is computed, and the bytes of a logit at its peak; the first that matches decides. Frameworks without a
# word of it have their own (planner/calibrate/framework_facts.py).
LOSSES: tuple[tuple[re.Pattern[str], float], ...] = (
    # Fused with the head's product, a chunk of tokens at a time: Liger's, cut cross-entropy (arXiv 2411.09009).
    (re.compile(r"liger|fused[-_ ]linear[-_ ](?:ce|cross)|cut[-_ ]?cross|linear[-_ ]cross[-_ ]entropy"), 0.0),
    (re.compile(r"chunked?[-_ ](?:loss|cross|ce\b)|loss[-_ ]chunk"), 2.0),  # torchtitan, pull request 996: 8 chunks
    # Megatron-Core's fusions: exponentials beside the float32 copy; Transformer Engine's overwrites the logits.
    (re.compile(r"cross[-_ ]entropy[-_ ](?:loss[-_ ])?fusion[-_ ]*(?:impl)?\s*[=: ]*(?:true;?\s*)?native"), 10.0),
    (re.compile(r"cross[-_ ]entropy[-_ ]fusion[-_ ]impl\s*[=:]\s*te\b"), 2.0),
    # flash-attn's cross-entropy: bfloat16 logits and their gradient (MPT's loss_fn fused_crossentropy, the default).
    (re.compile(r"llm[-_ ]?foundry"), 4.0),
)
# Megatron's arguments, and the bytes a parameter takes with them: gradients reduced in bfloat16, and moments kept so.
NARROW_GRADIENTS = re.compile(
    r"(?:grad[-_]reduce[-_]in[-_]bf16|main[-_]grads[-_]dtype)\s*[=:]\s*(?:true|bf16|torch\.bfloat16)"
)
NARROW_MOMENTS = re.compile(r"exp[-_]avg[-_]dtype\s*[=:]\s*(?:bf16|torch\.bfloat16)")
ARGUMENTS = re.compile(r"transformer-impl\s*=")  # Megatron-LM's own, of which dropout of 0.1 is the default
NO_DROPOUT = re.compile(r"hidden-dropout\s*=\s*0?\.?0*(?:[;|\s]|$)|no-dropout")
COMPILED = re.compile(r"torch\.compile|\bcompiled?\b|inductor")
EAGER = re.compile(r"\beager\b|no compile|without compile|compile\s*[=:]\s*(?:n\b|no|false|off)")
# torchtitan with torch.compile: logits in bfloat16 and their gradient, where the float32 copy is inside of the compiled
# loss (pull request 1033, of 2025-04; first proposed as 551); before that, the model's own float32 logits.
COMPILED_LOSS = "2025-04"
COMPILED_LOGIT_BYTES = 4.0
COMPILED_FLOAT32_LOGIT_BYTES = 13.0


def case_accounting(case: PublishedCase, software: Software) -> MemoryCoefficients:
    """What its framework keeps in memory, with what its settings change in that."""
    return adjusted_accounting(
        case.settings_text, case.software, case.attention_kernel, software.accounting, case.month
    )


def fullest_footprint(case: PublishedCase, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """Memory of the fullest rank, with the encoders that are on it."""
    fullest = fullest_of_module(case.module, setup, accounted)
    in_stages = [each for each in case.encoders if each.place == "all_stages"]
    for each in in_stages:
        fullest = fullest.sharing_ranks(fullest_of_module(each.module, each.in_stages(setup), accounted))
    first = [each for each in case.encoders if each.place == "first_stage"]
    if not first:
        return fullest
    with_encoders = footprint(case.module, setup, accounted, 0.0)
    for each in first:
        with_encoders = with_encoders.sharing_ranks(fed_footprint(each, setup, accounted))
    return with_encoders if float(with_encoders.total) > float(fullest.total) else fullest


def fed_footprint(encoder: CaseEncoder, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """Memory of an encoder on the first stage, which holds what it keeps of every micro-batch in flight there."""
    fed = encoder.feeding(setup)
    alone = fullest_of_module(encoder.module, fed.at, accounted)
    held = alone.activations * in_flight(setup, 0.0) if fed.flow.has_backward() else 0.0
    return replace(alone, activations=held)


@lru_cache(maxsize=4096)  # half of the records repeat a configuration, and each asks two or three times
def fullest_of_module(module: Module, setup: LayoutColumns, accounted: MemoryCoefficients) -> Footprint:
    """The footprint of the fullest stage of one setup."""
    return fullest_stage(module, setup, accounted)


def adjusted_accounting(
    settings: str, software: str, kernel: AttentionKernel, accounting: MemoryCoefficients, month: str = ""
) -> MemoryCoefficients:
    """The framework's coefficients with what the record's settings (free text, in lower case) and the month of its
    software change in them.
    """
    loss = next((each for words, each in LOSSES if words.search(settings)), None)
    if loss is not None:
        accounting = with_fields(accounting, logit_bytes=loss)
    if kernel == "stored":
        accounting = with_fields(accounting, flash=False)
    if NARROW_GRADIENTS.search(settings):
        accounting = with_fields(accounting, gradient_bytes=2.0)
    held = adam_bytes(software, month)
    if held is not None:
        accounting = with_fields(accounting, update_bytes=held)
    if NARROW_MOMENTS.search(settings):
        accounting = with_fields(accounting, optimizer_bytes=8.0)
    if NOT_EXPANDABLE.search(settings):
        accounting = with_fields(accounting, fragmentation=FRAGMENTED)
    elif SEGMENTS.search(settings):
        accounting = with_fields(accounting, fragmentation=0.0)
    if software == "megatron" and ARGUMENTS.search(settings) and not NO_DROPOUT.search(settings):
        accounting = with_fields(accounting, dropout=True)
    if loss is None and software == "torchtitan" and COMPILED.search(settings) and not EAGER.search(settings):
        logits = COMPILED_LOGIT_BYTES if month >= COMPILED_LOSS else COMPILED_FLOAT32_LOGIT_BYTES
        accounting = with_fields(accounting, logit_bytes=logits, fused=True)
    return accounting
