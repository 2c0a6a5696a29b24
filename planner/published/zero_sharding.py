"""ZeRO stage of a published record, and the number of copies of each shard."""

import re

from planner.published import megatron_arguments
from planner.published.rank_degrees import RankDegrees, stated_zero_stage
from planner.published.record_files import PublishedRecord, UnusableRecord

# Usual stages, where a record states none: NeMo's and Primus' recipes use Megatron's distributed optimizer (ZeRO-1),
# InternEvo ZeRO-1; torchtitan and FSDP shard weights (ZeRO-3).
USUAL_STAGE = {"nemo": 1, "primus": 1, "internevo": 1, "torchtitan": 3, "fsdp": 3, "megatron": 1}
OFF_PATTERN = re.compile(r"0|false|off|no|none|ddp|no_shard|n/?a|-")
GRADIENTS_PATTERN = re.compile(r"grad_op|zero-?2")  # weights stay replicated
SHARD_GROUP_PATTERN = re.compile(r"(?:shard(?:ing)?[ _]?(?:group|size|degree)|zero1)\s*=\s*(-?\d{1,6})")


def sharding_stage(record: PublishedRecord, software: str) -> tuple[int, bool]:
    """The ZeRO stage, and whether it is assumed. Raises UnusableRecord."""
    fsdp, stated = record.text("fsdp").lower(), stated_zero_stage(record)
    if fsdp and not OFF_PATTERN.fullmatch(fsdp):
        return 2 if GRADIENTS_PATTERN.search(fsdp) else 3, False
    if stated is not None:
        return stated, False
    stated_arguments = megatron_arguments.arguments_of(record)
    if stated_arguments or fsdp == "ddp":
        return (1 if stated_arguments.is_set("use-distributed-optimizer") else 0), False
    if fsdp and software in ("torchtitan", "fsdp"):
        return 0, False
    return USUAL_STAGE.get(software, 0), True


def shard_copies(record: PublishedRecord, stage: int, degrees: RankDegrees, per_node: int) -> int:
    """Copies of what ZeRO shards (HSDP). Raises UnusableRecord where shard groups do not divide the replicas."""
    text = record.text("fsdp").lower()
    replicas = degrees.dp * degrees.cp
    size = 0
    if stage == 3 and re.fullmatch(r"\d{1,7}", text) and int(text) > 1:
        size = int(text)
    elif stage == 3 and re.search(r"hsdp|hybrid", text):
        size = max(
            1, per_node // (degrees.tp * degrees.cp)
        )  # shards within a node: the default of PyTorch's HYBRID_SHARD
    else:
        match = SHARD_GROUP_PATTERN.search(record.text("other_settings").lower())
        size = max(0, int(match[1])) if match and stage else 0
    if size >= replicas or not size:
        return 1
    if replicas % size:
        raise UnusableRecord("layout does not multiply up", f"shards over {size} of {replicas} replicas")
    return replicas // size
