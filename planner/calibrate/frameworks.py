"""Known facts of each framework before any fit: what it keeps in memory, and the coefficients that are not fitted.

Memory accounting was matched to published peaks of real jobs; a value marked fitted rests on those records alone.
"""

from dataclasses import dataclass, field

from planner.specs.accounting import Accounting
from planner.specs.timing import Timing


@dataclass(frozen=True, slots=True)
class Framework:
    """Facts of a framework; `about`: its versions, and the source of its accounting."""

    about: str
    timing: Timing = field(default_factory=Timing)
    accounting: Accounting = field(default_factory=Accounting)


OLD = Timing(score_bytes=14.0)  # softmax, mask and dropout of a score in half precision, read and written (2205.05198)
# DeepSpeed's buckets are most of the workspace; the allocator's margin was fitted on BigScience's peaks.
ATTENTION_KEPT = Accounting(
    flash=False, dropout=True, logit_bytes=10.0, workspace_gib=2.0, fragmentation=0.02, spread=0.17
)
FSDP2 = Accounting(
    own_master=True,
    keeps_gathered=True,
    selective="ops",
    logit_bytes=14.0,  # bf16 logits, log-softmax and two float32 gradients
    fused=False,
    fragmentation=0.03,  # fitted
    spread=0.1,
)
FRAMEWORKS = {
    "generic": Framework(
        "What is common to all frameworks that were fitted: for one that nobody described. Memory: Megatron-LM's.",
        accounting=Accounting(spread=0.25),
    ),
    "megatron": Framework(
        "Megatron-LM of 2023 and after, with Transformer Engine. Memory: its own golden values of release jobs.",
        accounting=Accounting(spread=0.08),
    ),
    "megatron-2021": Framework(
        "Megatron-LM before flash attention. Memory: BigScience's peaks on V100.", OLD, ATTENTION_KEPT
    ),
    "nemo": Framework(
        "NeMo and Megatron-Bridge. Memory: Megatron-Bridge's ablation, with the allocator's segments expandable.",
        accounting=Accounting(
            gradient_bytes=2.0,
            fp8_weight_bytes=2.0,
            fp8_pointwise=True,  # fitted
            logit_bytes=4.0,
            spread=0.08,
        ),
    ),
    "torchtitan": Framework("torchtitan. Memory: its performance tables of 2024, reserved bytes.", accounting=FSDP2),
    "internevo": Framework(
        "InternEvo (InternLM). Its update broadcasts each rank's part in turn. Memory: by analogy; its own table shows"
        " a third more than any accounting of states explains, and jobs that would then not fit ran.",
        Timing(gradient_bytes=2.0),
        Accounting(gradient_bytes=2.0, logit_bytes=10.0, spread=0.25),
    ),
    "deepspeed": Framework(
        "DeepSpeed, with Megatron's or Hugging Face's models. Memory: BigScience's peaks on V100.",
        accounting=Accounting(workspace_gib=2.0, logit_bytes=10.0, spread=0.2),
    ),
    "fsdp": Framework(
        "PyTorch FSDP under other trainers. Memory as torchtitan's, not checked against peaks.",
        accounting=Accounting(own_master=True, logit_bytes=14.0, fused=False, fragmentation=0.03, spread=0.25),
    ),
    "primus": Framework(
        "AMD Primus, Megatron on ROCm. Memory: its pipelines of Qwen3-235B; the allocator's margin was fitted.",
        accounting=Accounting(fragmentation=0.13, spread=0.25),
    ),
}
