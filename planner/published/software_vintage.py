"""When the software of a published record is from, the attention kernel that it had, and its recipe of fp8."""

import re

from planner.published.record_files import PublishedRecord
from planner.published.record_setup import settings_text
from planner.specs.framework.dated_kernels import AttentionKernel, attention_kernel
from planner.specs.framework.timing_coefficients import Fp8Recipe

# The first that matches decides: versions that are months, dates, identifiers of arXiv, years.
MONTH_PATTERNS = (
    re.compile(r"container\s*(?P<year>2[2-9])\.(?P<month>0[1-9]|1[0-2])\b"),
    re.compile(r"(?:nemo|v)\s*(?P<year>2[2-9])\.(?P<month>0[1-9]|1[0-2])\b"),
    re.compile(r"\b(?P<year>2[2-9])\.(?P<month>0[1-9]|1[0-2])(?:\.\d+)? nemo"),
    re.compile(r"\b20(?P<year>[12]\d)-(?P<month>0[1-9]|1[0-2])"),
    re.compile(r"arxiv[: ]*(?P<year>[12]\d)(?P<month>0[1-9]|1[0-2])\."),
)
YEAR_PATTERN = re.compile(r"\b20(?P<year>[12]\d)\b")
LEADING_YEAR = re.compile(r"\s*(20[12]\d)\b(?!-\d)")
# Words of a record's settings that name its kernel.
NAMED_KERNELS: tuple[tuple[str, AttentionKernel], ...] = (
    (r"attn_impl\s*[=:]\s*triton", "triton"),
    # Megatron's own layers have no other attention (Megatron-Core's DotProductAttention).
    (
        r"attention-backend\s*=\s*(?:unfused|local)\b|transformer-impl\s*=\s*local\b|attn_impl\s*[=:]\s*torch|no flash",
        "stored",
    ),
    (r"flash[- _]?att(?:n|ention)[- _]?3|\bfa[- ]?3\b", "newest"),
    (r"flash[- _]?att(?:n|ention)[- _]?2|\bfa[- ]?2\b", "flash2"),
    (r"cudnn (?:fused )?att", "cudnn"),
)
ROWWISE = re.compile(r"\b(?:row|axis)[-_ ]?wise\b|\bnvfp4\b")


def software_month(record: PublishedRecord) -> str:
    """The month YYYY-MM of a record's software, or its year; empty where nothing says it."""
    for name in ("date_or_version", "source_ref"):
        text = record.text(name).lower()
        leading = LEADING_YEAR.match(text)
        if leading:
            return leading[1]
        for pattern in MONTH_PATTERNS:
            found = pattern.search(text)
            if found:
                return f"20{found['year']}-{found['month']}"
        year = YEAR_PATTERN.search(text)
        if year:
            return f"20{year['year']}"
    return ""


def record_kernel(record: PublishedRecord, software: str) -> AttentionKernel:
    """The attention kernel of a record, as its settings or its software's month say."""
    settings = settings_text(record)
    named = next((kernel for words, kernel in NAMED_KERNELS if re.search(words, settings)), None)
    return named or attention_kernel(software, software_month(record))


def record_fp8_recipe(record: PublishedRecord) -> Fp8Recipe:
    """What shares a scale in fp8 or NVFP4, as a record's settings say."""
    return "rowwise" if ROWWISE.search(settings_text(record)) else "tensorwise"
