"""Since when a framework launches a layer's experts at once, in fp8 with a scale for each few elements (MXFP8).

Before, the host launches the products and the casts of one expert after another, and must know how many tokens each
gets. Megatron-Bridge 0.5.1 (NeMo 26.06) has a fused kernel for all experts of a rank, whose counts stay on the device,
so that whole steps are CUDA graphs (its release notes; Transformer Engine 2.14, pull request 2769).
"""

from planner.specs.framework.attention_kernels import TODAY

SINCE = {"nemo": "2026-06"}


def launches_at_once(framework: str, month: str = TODAY) -> bool:
    """Whether a framework of a month, YYYY-MM, or of a year does so; an undated one is the newest."""
    return framework in SINCE and (month or TODAY) >= SINCE[framework]
