"""Activation recomputation of a published record: the share of whole layers, and parts of the other layers."""

import re

from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.parallelism import SELECTIVE_PARTS, RecomputedPart

RecomputeSetting = tuple[float, frozenset[RecomputedPart]]
NOTHING: RecomputeSetting = (0.0, frozenset())
NONE_PATTERN = re.compile(
    r"(no|none|false|off|0|disabled?|without|never|no (ac|recompute|recomputation|checkpointing))\s*([,;(].*)?"
)
ALL_LAYERS_PATTERN = re.compile(r"\b(full|all|whole|yes|true|on|every layer|full ac|uniform|complete|enabled?)\b")
LAYER_COUNT_PATTERN = re.compile(r"(?:block|layers?|full)?\s*[:=]?\s*(\d{1,4})\s*(?:layers?)?(?:\s*per stage)?")
EVERY_NTH_PATTERN = re.compile(
    r"(?:every|1 in|each)\s*(\d{1,2})|(\d{1,2})(?:nd|rd|th)\b|select\w*\s*[:=]?\s*(\d{1,2})$"
)
SHARE_PATTERN = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%|\b(0?\.\d+)\b|\b1/(\d{1,2})\b")
SETTING_PATTERN = re.compile(r"(?:recompute|recomputation|activation[ _-]?(?:ckpt|checkpoint\w*))\s*[=:]\s*([^;,|]*)")
# Words that name parts of a layer, as Megatron's --recompute-modules and torchtitan's activation_checkpoint do.
PART_PATTERNS: tuple[tuple[str, frozenset[RecomputedPart]], ...] = (
    (r"core[ _-]?attn|core[ _-]?attention|attention|\battn\b", frozenset({"attention"})),
    (r"layer[ _-]?norm|rms[ _-]?norm|\bnorms?\b|\bln\b", frozenset({"norm"})),
    (
        r"\bmoe[ _-]?act|\bact\b|activation[ _-]?func\w*|swiglu|silu|gelu|\bmlp\b|\bffn\b|shared[ _-]?experts?",
        frozenset({"mlp"}),
    ),
    (r"\bmoe\b(?![ _-]?act)|(?<!shared )\bexperts?\b", frozenset({"moe"})),
    (r"mla[ _-]?up[ _-]?proj|\bup[ _-]?proj\b|\brope\b", frozenset()),
)
# torchtitan's per-op policy saves the results of every other matmul and of attention, and recomputes the rest.
PER_OP: RecomputeSetting = (0.0, SELECTIVE_PARTS)
EVERY_SECOND_LAYER: RecomputeSetting = (
    0.5,
    frozenset(),
)  # torchtitan's `selective` by layer: every second one (its default option 2)
CORE_ATTENTION: RecomputeSetting = (0.0, frozenset({"attention"}))  # Megatron's default module: core attention


def recompute_setting(record: PublishedRecord, software: str, chunk: float) -> RecomputeSetting:
    """The setting of a record; `chunk`: layers of one virtual stage, of which a stated number is recomputed.

    Raises UnusableRecord.
    """
    text = stated_recompute(record)
    if not text or NONE_PATTERN.fullmatch(text):
        return NOTHING
    counted = (
        LAYER_COUNT_PATTERN.search(text) if re.search(r"block", text) or LAYER_COUNT_PATTERN.fullmatch(text) else None
    )
    if counted and chunk > 0:
        return min(1.0, int(counted[1]) / chunk), frozenset()
    every = EVERY_NTH_PATTERN.search(text)
    if every:
        return 1 / max(1, int(every[1] or every[2] or every[3])), frozenset()
    if "select" in text and re.search(r"\blayers?\b", text) and not re.search(r"layer[ _-]?norm", text):
        return EVERY_SECOND_LAYER
    if "select" in text and re.search(r"\bops?\b", text):
        return PER_OP
    parts = [part for words, part in PART_PATTERNS if re.search(words, text)]
    if parts:
        return 0.0, frozenset[RecomputedPart]().union(*parts)
    if "select" in text:
        return selective_recompute(record, software)
    share = SHARE_PATTERN.search(text)
    if share:
        value = float(share[1]) / 100 if share[1] else float(share[2]) if share[2] else 1 / max(1, int(share[3]))
        return min(1.0, value), frozenset()
    if ALL_LAYERS_PATTERN.search(text):
        return 1.0, frozenset()
    raise UnusableRecord("recompute not understood", record.text("recompute")[:60])


def stated_recompute(record: PublishedRecord) -> str:
    """The recompute column, else the matching part of the other settings, in lower case."""
    text = record.text("recompute") or "".join(
        found[1] for found in SETTING_PATTERN.finditer(record.text("other_settings").lower())
    )
    return re.sub(r"\s+", " ", text.lower()).strip()


def selective_recompute(record: PublishedRecord, software: str) -> RecomputeSetting:
    """What `selective` means in a framework, where no modules are named."""
    if software == "torchtitan":
        return PER_OP
    if software == "fsdp":
        return share_from_flops(record)
    return CORE_ATTENTION


def share_from_flops(record: PublishedRecord) -> RecomputeSetting:
    """The share of recomputed layers from HFU over MFU: with all layers recomputed, it is 4/3. Raises UnusableRecord.

    The record must state both MFU and HFU.
    """
    mfu, hfu = record.positive("mfu_pct"), record.positive("hfu_pct")
    if mfu is None or hfu is None:
        raise UnusableRecord("recompute not understood", f"{record.text('recompute')}: which layers")
    return min(1.0, max(0.0, 3 * (hfu / mfu - 1))), frozenset()
