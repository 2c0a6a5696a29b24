"""The parallelization strategy of a published record, as a setup that can be priced."""

import re

from planner.costs import LayoutColumns
from planner.published import exchange_settings, megatron_arguments
from planner.published.batch_sizes import BatchSizes, batch_sizes
from planner.published.platforms import matmul_precision
from planner.published.rank_degrees import RankDegrees, rank_degrees, stated_zero_stage
from planner.published.recompute_setting import recompute_setting, stated_recompute
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.layers import Module
from planner.specs.parallelism import Schedule

SCHEDULES: tuple[tuple[str, Schedule | None], ...] = (
    (r"\bv[- ]?(half|min)\b|dualpipe|bidirectional|chimera|hanayo|seq1f1b|terapipe", None),
    (r"zero[- ]?bubble|\bzb(?:[- ]?[hv]\d?|b|v)?\b|zbv", "zb_h1"),
    (r"gpipe|\bafab\b|all forward", "gpipe"),
    (r"interleav", "interleaved"),
)
TEXT_COLUMNS = ("framework", "task", "precision", "recompute", "other_settings", "notes")
# Idle share of a pipeline's compute, (pp − 1)/(m·vpp), above which a recipe of NeMo is not believed not to interleave:
# the largest of 217 records that state their vpp is 0.09.
IMPLAUSIBLE_BUBBLE = 0.25
# Megatron's --optimizer-cpu-offload and its fraction, DeepSpeed's offload_optimizer, and words for both.
OPTIMIZER_OFFLOAD = re.compile(
    r"(?:optim\w*[-_ ](?:cpu[-_ ]|states? )?offl(?:oad)?\w*|offload\w*[-_ ](?:of )?(?:the )?optim\w*|zero[- ]offload"
    r"|opt offl|optim\w* (?:states? )?(?:on|in) (?:the )?(?:host|cpu))\b"
    r"(?!\s*[=:]\s*(?:n\b|no|none|false|off|0\b(?!\.)))"
)
OFFLOADED_SHARE = re.compile(r"optim\w*[-_ ]offload[-_ ]fraction\s*[=:]\s*(\d(?:\.\d+)?)")
SEQUENCE_PARALLEL = re.compile(r"sequence[ _-]parallel\s*[=:]\s*(true|false|on|off)")
# Usual stages, where a record states none: NeMo's and Primus' recipes use Megatron's distributed optimizer (ZeRO-1),
# InternEvo ZeRO-1; torchtitan and FSDP shard weights (ZeRO-3).
USUAL_STAGE = {"nemo": 1, "primus": 1, "internevo": 1, "torchtitan": 3, "fsdp": 3, "megatron": 1}
OFF_PATTERN = re.compile(r"0|false|off|no|none|ddp|no_shard|n/?a|-")
GRADIENTS_PATTERN = re.compile(r"grad_op|zero-?2")  # weights stay replicated
SHARD_GROUP_PATTERN = re.compile(r"(?:shard(?:ing)?[ _]?(?:group|size|degree)|zero1)\s*=\s*(-?\d{1,6})")


def record_setup(
    record: PublishedRecord, module: Module, device: str, software: str, per_node: int
) -> tuple[LayoutColumns, list[str]]:
    """The setup of a record, and the blank columns that were assumed; `per_node`: ranks of a node. Raises
    UnusableRecord.
    """
    degrees = rank_degrees(record, module, software)
    size = batch_sizes(record, degrees)
    stage, guessed_stage = sharding_stage(record, software)
    dtype, guessed_precision = matmul_precision(record, device)
    split, guessed_split = sequence_parallel(record, degrees, module, software)
    full, parts = recompute_setting(record, software, module.layers / (degrees.pp * degrees.vpp))
    guesses = {
        "zero_stage": guessed_stage and degrees.dp * degrees.cp > 1,
        "precision": guessed_precision,
        "sp": guessed_split,
    }
    guesses |= {
        "recompute": not stated_recompute(record),
        "vpp": interleaves_unsaid(record, degrees, size, software),
    }
    words = exchange_settings.exchange_settings(settings_text(record), module)
    assumed = [*degrees.assumed, *size.assumed, *(name for name, guessed in guesses.items() if guessed)]
    columns = LayoutColumns(
        ranks=degrees.ranks,
        seq=size.seq,
        batch=size.batch,
        micro_batch=size.micro_batch,
        tp=degrees.tp,
        cp=degrees.cp,
        ulysses=degrees.cp if splits_heads(settings_text(record), software, module, degrees) else 1,
        pp=degrees.pp,
        vpp=degrees.vpp,
        ep=degrees.ep,
        etp=degrees.etp,
        zero=stage,
        replica=shard_copies(record, stage, degrees, per_node),
        sequence_parallel=split,
        full_recompute=full,
        recomputed_parts=parts,
        dtype=dtype,
        schedule=pipeline_schedule(record, degrees),
        optimizer_offload=optimizer_offload(settings_text(record)),
        overlap=words.overlap,
        dispatch=words.dispatch,
        imbalance=words.imbalance,
    )
    return columns, assumed


def splits_heads(settings: str, software: str, module: Module, degrees: RankDegrees) -> bool:
    """Whether sequences are sharded by all-to-alls over heads (DeepSpeed-Ulysses, arXiv 2309.14509), not in rings."""
    named = software == "deepspeed" or re.search(r"ulysses|cp[-_ ]comm[-_ ]type\s*[=:]\s*a2a\b", settings)
    return bool(named) and module.heads % (degrees.tp * degrees.cp) == 0


def settings_text(record: PublishedRecord) -> str:
    """The record's free-text columns, joined, in lower case."""
    return " | ".join(record.text(name) for name in TEXT_COLUMNS if record.text(name)).lower()


def pipeline_schedule(record: PublishedRecord, degrees: RankDegrees) -> Schedule:
    """The pipeline schedule. Raises UnusableRecord for one that has no cost model."""
    text = record.text("other_settings").lower()
    if degrees.pp == 1:
        return "1f1b"
    for words, name in SCHEDULES:
        if re.search(words, text):
            if name is None:
                raise UnusableRecord("schedule not understood", record.text("other_settings")[:60])
            return name if name != "interleaved" or degrees.vpp > 1 else "1f1b"
    return "interleaved" if degrees.vpp > 1 else "1f1b"


def interleaves_unsaid(record: PublishedRecord, degrees: RankDegrees, size: BatchSizes, software: str) -> bool:
    """Whether a record leaves open if its pipeline interleaves: tables of NeMo's recipes may leave out their vpp."""
    idle = (degrees.pp - 1) * degrees.dp * size.micro_batch / size.batch
    return software == "nemo" and not record.text("vpp") and idle > IMPLAUSIBLE_BUBBLE


def optimizer_offload(settings: str) -> float:
    """The share of Adam's moments in host memory, where processors update them."""
    if not OPTIMIZER_OFFLOAD.search(settings):
        return 0.0
    share = OFFLOADED_SHARE.search(settings)
    return min(1.0, float(share[1])) if share else 1.0


def sequence_parallel(
    record: PublishedRecord, degrees: RankDegrees, module: Module, software: str
) -> tuple[bool, bool]:
    """Whether norms are sharded over tp too (sequence parallelism), and whether that is assumed. Raises UnusableRecord.

    NeMo's and Megatron-Bridge's recipes use it wherever tp > 1, torchtitan always, and experts need it in Megatron;
    in Megatron-LM it is an option since 2022 (arXiv 2205.05198); Megatron-DeepSpeed branched off before.
    """
    text = record.stated("sp").lower()
    if text and not re.fullmatch(r"\d+", text):
        return bool(record.flag("sp")), False
    if text:
        return int(text[:9]) > 0, False
    match = SEQUENCE_PARALLEL.search(f"{record.text('other_settings')} {record.text('notes')}".lower())
    if match:
        return match[1] in ("true", "on"), False
    if megatron_arguments.arguments_of(record):
        return module.routed_experts is not None, False
    if software in ("megatron-2021", "deepspeed", "deepspeed-2021"):
        return False, False
    return True, degrees.tp > 1 and software not in ("torchtitan", "nemo") and module.routed_experts is None


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
