"""Known facts of each framework before any fit: what it keeps in memory, and the coefficients that are not fitted.

Memory accounting was matched to published peaks of real jobs; a value marked fitted rests on those records alone.
"""

from dataclasses import dataclass, field

from planner.specs.framework.dated_kernels import ROOT
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.timing_coefficients import TimingCoefficients


@dataclass(frozen=True, slots=True)
class FrameworkFacts:
    """Facts of a framework; `about`: its versions, and the source of its accounting."""

    about: str
    timing: TimingCoefficients = field(default_factory=TimingCoefficients)
    accounting: MemoryCoefficients = field(default_factory=MemoryCoefficients)
    unstated: float = 0.0  # of the log of a step: what a job does not say of versions and options


# Megatron-LM's own data parallelism reduces gradients after the last backward until its --overlap-grad-reduce of 2023.
# A score, masked or not, its softmax and dropout in half precision, written and read (costs/machine_model.py).
BEFORE_FLASH = TimingCoefficients(score_bytes=12.0, gathers_ahead=False, overlaps_replicas=False)
# DeepSpeed's buckets are most of the workspace; the allocator's margin was fitted on BigScience's peaks.
SCORES_KEPT = MemoryCoefficients(
    flash=False, dropout=True, logit_bytes=10.0, workspace_gib=2.0, fragmentation=0.02, spread=0.17
)
FSDP2 = MemoryCoefficients(
    own_master=True,
    keeps_gathered=True,
    selective="ops",
    logit_bytes=14.0,  # bf16 logits, log-softmax and two float32 gradients
    fused=False,
    fused_norms=False,
    fragmentation=0.03,  # fitted
    spread=0.1,
)
# Latency of a broadcast, around a ring of 256 ranks in nodes of eight: 224 hops of 3 us within nodes, 31 of 8 between.
RING_OF_HUNDREDS_MS = 0.92
# The slope of the five steps that nemo's text names, over the 1.91e9 parameters that each rank updates.
MEGATRON_CORE = TimingCoefficients(host_update_ns=1.62)
FRAMEWORKS = {
    "generic": FrameworkFacts(
        "What is common to all frameworks that were fitted: for one without a description. Memory: Megatron-LM's.",
        accounting=MemoryCoefficients(spread=0.25),
    ),
    "megatron": FrameworkFacts(
        "Megatron-LM of 2023 and after, with Transformer Engine. Memory: its own golden values of release jobs."
        " host_update_ns: of Megatron-Bridge, as in nemo.yaml.",
        MEGATRON_CORE,
        accounting=MemoryCoefficients(spread=0.08),
    ),
    "megatron-2021": FrameworkFacts(
        "Megatron-LM before flash attention. Memory: BigScience's peaks on V100.", BEFORE_FLASH, SCORES_KEPT
    ),
    "nemo": FrameworkFacts(
        "NeMo and Megatron-Bridge. Memory: Megatron-Bridge's ablation, with the allocator's segments expandable."
        " host_update_ns: the slope of its own five steps of Qwen3-30B-A3B on 16 H100 (tp 2, pp 2, ep 4), whose"
        " optimizer is offloaded to 0, 25, 50, 75 and 100 %: 996, 1871, 2484, 3187, 4189 ms, without overlap of the"
        " copies (docs/training/cpu-offloading.md, 2026-03-30).",
        TimingCoefficients(host_update_ns=1.62, experts_at_once=True),
        accounting=MemoryCoefficients(
            gradient_bytes=2.0,
            fp8_weight_bytes=2.0,
            fp8_pointwise=True,  # fitted
            logit_bytes=4.0,
            spread=0.08,
        ),
    ),
    "torchtitan": FrameworkFacts(
        "torchtitan. Memory: its performance tables of 2024, reserved bytes; a fused Adam since 2025-02. unstated: two"
        " steps of 2024-05, in eager mode with plain norms, took 1.53 and 1.43 times what this predicts (PyTorch issue"
        " 88838).",
        accounting=FSDP2,
        unstated=0.43,
    ),
    "internevo": FrameworkFacts(
        "InternEvo (InternLM). Its update broadcasts each rank's part in turn. Memory: a rank's float32 weights are one"
        " flat tensor (its HybridZeroOptimizer), so that torch's Adam, which is not one kernel there, has its square"
        " root and quotient whole.",
        TimingCoefficients(gradient_bytes=2.0, shard_ms=RING_OF_HUNDREDS_MS, gathers_ahead=False),
        MemoryCoefficients(gradient_bytes=2.0, update_bytes=8.0, logit_bytes=10.0, spread=0.25),
    ),
    "deepspeed": FrameworkFacts(
        "DeepSpeed, with the layers of others; below ZeRO-3 its step ends with gathering what it updated. Memory: its"
        " two buckets of 5e8 gradients, which are in the precision of the weights; a step on one flat float32 partition"
        " (runtime/zero of 0.19.5), where torch's AdamW has square root and quotient whole, as a run of"
        " 2023-10 said to the byte (LLaMA-Factory, issue 1221). With foreach of torch 2.1 (2023-10) and later it is"
        " half of that, with DeepSpeed's own FusedAdam nothing. spread: assumed.",
        TimingCoefficients(gathers_ahead=False),
        accounting=MemoryCoefficients(
            gradient_bytes=2.0,
            update_bytes=8.0,
            releases_gradients=True,
            bucket_gib=1.86,
            logit_bytes=10.0,
            spread=0.12,
        ),
    ),
    "deepspeed-2021": FrameworkFacts(
        "DeepSpeed's ZeRO-3 of mid-2021, which gathers and reduces beside no compute (its pull request 1188 came"
        " later), before flash attention. Memory as megatron-2021's.",
        BEFORE_FLASH,
        SCORES_KEPT,
    ),
    "fsdp": FrameworkFacts(
        "PyTorch FSDP under other trainers, which reduce gradients in bfloat16 (MixedPrecision PURE of llm-foundry's"
        " MPT files, bfSixteen of fms-fsdp). Memory as torchtitan's, not checked against peaks, with torch's AdamW by"
        " foreach.",
        TimingCoefficients(gradient_bytes=2.0),
        accounting=MemoryCoefficients(
            own_master=True,
            update_bytes=ROOT,
            logit_bytes=14.0,
            fused=False,
            fused_norms=False,
            fragmentation=0.03,
            spread=0.25,
        ),
    ),
    "primus": FrameworkFacts(
        "AMD Primus, Megatron on ROCm. Memory: its pipelines of Qwen3-235B; the allocator's margin was fitted.",
        accounting=MemoryCoefficients(fragmentation=0.13, spread=0.25),
    ),
}
