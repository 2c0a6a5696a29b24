"""Bytes a parameter that a step of torch's AdamW holds besides its states, by the framework and its month.

One kernel (`fused`) holds nothing. Its loop over all tensors (`foreach`), the default on GPUs, holds the square root of
the second moments, and before torch 2.1 their sum with epsilon as well (pull request 104898). torchtitan is fused by
default since its pull request 881; fms-fsdp names no implementation.
"""

from planner.specs.framework.attention_kernels import TODAY

ROOT_AND_SUM, ROOT, FUSED = 8.0, 4.0, 0.0
# Framework → since when, the latest first; before, or without a word of the month, as the last.
SINCE = {
    "torchtitan": (("2025-02", FUSED), ("2023-10", ROOT), ("", ROOT_AND_SUM)),
    "fsdp": (("2023-10", ROOT), ("", ROOT_AND_SUM)),
}


def adam_bytes(framework: str, month: str = TODAY) -> float | None:
    """The bytes in a framework of a month, YYYY-MM, or of a year; of an undated one in the newest. None: not dated."""
    return next((size for since, size in SINCE.get(framework, ()) if (month or TODAY) >= since), None)
