"""Since when frameworks have which kernels: attention, its rate over the newest's, Adam's update, and experts at once.

Attention. Rates of forward and backward together, fitted to FlashAttention's own figures (README; arXiv 2407.08608,
figure 5), over those of the newest kernel timed on the device: causal, heads of 128, in TFLOP/s at long sequences.

             A100                            H100
newest       183 (FA-2)                      586 (FA-3, forward 657, backward 560)
cudnn        as FA-2                         534 (cuDNN 9, forward 565, backward 520)
flash2       193, taken as the newest        333
flash1       81                              not found
triton       80                              not found

What was not found is taken to be as far behind FlashAttention-2 as on A100.

Update. torch's AdamW holds bytes for a parameter besides its states. One kernel (`fused`) holds nothing. Its loop over
all tensors (`foreach`), the default on GPUs, holds the square root of the second moments, and before torch 2.1 their
sum with epsilon as well (pull request 104898). torchtitan is fused by default since its pull request 881; fms-fsdp
names no implementation.

Experts. In fp8 with a scale for each few elements (MXFP8) the host launched the products and the casts of one expert
after another, and had to know how many tokens each gets. Megatron-Bridge 0.5.1 (NeMo 26.06) has a fused kernel for all
experts of a rank, whose counts stay on the device, so that whole steps are CUDA graphs (its release notes; Transformer
Engine 2.14, pull request 2769).
"""

from typing import Literal, NamedTuple

from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients

# stored: the attention matrix is written to memory and read again.
AttentionKernel = Literal["stored", "triton", "flash1", "flash2", "cudnn", "newest"]


class KernelShares(NamedTuple):
    """Rates of an attention kernel over the newest kernel's."""

    hopper: float  # on Hopper and later
    ampere: float  # on Ampere and earlier


KERNEL_SHARES: dict[AttentionKernel, KernelShares] = {
    "stored": KernelShares(0.57, 1.0),  # its products; the matrix is priced by `score_bytes`
    "triton": KernelShares(0.25, 0.44),
    "flash1": KernelShares(0.25, 0.44),
    "flash2": KernelShares(0.57, 1.0),
    "cudnn": KernelShares(0.91, 1.0),
    "newest": KernelShares(1.0, 1.0),
}
Generations = tuple[tuple[str, AttentionKernel], ...]  # from this month on, the latest first
# FlashAttention 0.2.1 was of 2022-11, FlashAttention-2 of 2023-07; PyTorch 2.2 (2024-01) has the latter, and torchtitan
# asks for cuDNN's first since 2025.
PYTORCH: Generations = (("2024-01", "flash2"), ("2022-11", "flash1"), ("", "stored"))
# Megatron-LM had flash attention from 2023-01 on; Transformer Engine 1.2 (2023-12) prefers cuDNN's on Hopper, which is
# so quick since cuDNN 9 (in containers from 2024-05 on).
MEGATRON: Generations = (("2024-05", "cudnn"), ("2023-08", "flash2"), ("2023-01", "flash1"), ("", "stored"))
FLASH_ATTENTION: Generations = (("2023-08", "flash2"), ("2022-11", "flash1"), ("", "stored"))
GENERATIONS: dict[str, Generations] = {
    "generic": MEGATRON,
    "megatron": MEGATRON,
    "megatron-2021": (("", "stored"),),
    "deepspeed-2021": (("", "stored"),),
    "nemo": MEGATRON,
    "torchtitan": (("2025-04", "cudnn"), *PYTORCH),
    "deepspeed": FLASH_ATTENTION,  # of the models that it trains
    "internevo": FLASH_ATTENTION,
    "primus": (("", "newest"),),
    "fsdp": PYTORCH,
}
TODAY = "9999"


def attention_kernel(framework: str, date: str = TODAY) -> AttentionKernel:
    """The kernel that a framework had in a month, YYYY-MM, or when a year began; of an unknown one, as PyTorch."""
    month = date if len(date) != len("YYYY") or date == TODAY else f"{date}-01"
    generations = GENERATIONS.get(framework, PYTORCH)
    return next(kernel for since, kernel in generations if (month or TODAY) >= since)


def with_kernel(timing: TimingCoefficients, kernel: AttentionKernel) -> TimingCoefficients:
    """Coefficients of a framework that has this kernel, of those relative to its kernel."""
    shares = KERNEL_SHARES[kernel]
    return with_fields(
        timing, attention=timing.attention * shares.hopper, attention_ampere=timing.attention_ampere * shares.ampere
    )


ROOT_AND_SUM, ROOT, FUSED = 8.0, 4.0, 0.0
# Framework → since when, the latest first; before, or without a word of the month, as the last.
ADAM_SINCE = {
    "torchtitan": (("2025-02", FUSED), ("2023-10", ROOT), ("", ROOT_AND_SUM)),
    "fsdp": (("2023-10", ROOT), ("", ROOT_AND_SUM)),
}


def adam_bytes(framework: str, month: str = TODAY) -> float | None:
    """Bytes a parameter that Adam's update holds besides its states, in a framework of a month, YYYY-MM, or of a year;
    of an undated one in the newest. None: not dated.
    """
    return next((size for since, size in ADAM_SINCE.get(framework, ()) if (month or TODAY) >= since), None)


AT_ONCE_SINCE = {"nemo": "2026-06"}


def launches_at_once(framework: str, month: str = TODAY) -> bool:
    """Whether a framework of a month, YYYY-MM, or of a year launches a layer's experts at once; an undated one is the
    newest.
    """
    return framework in AT_ONCE_SINCE and (month or TODAY) >= AT_ONCE_SINCE[framework]
