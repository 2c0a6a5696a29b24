"""Measured step seconds and peak bytes of a published record; impossible figures are refused with their reason.

TFLOP/s and MFU become seconds by the FLOPs of a step as the record's source counts them.
"""

import re
from typing import Literal, NamedTuple

from planner.costs import LayoutColumns
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.layers import Module, kind_counts
from planner.specs.shapes import embedding_head_flops, layer_flops

AGREEMENT = 0.05  # relative difference of two figures for one step, before the rounding of printed digits
FLOPS_DEFINITIONS = 0.2  # by which a source's FLOP count may leave the range of the usual definitions
MEMORY_UNITS = {"": 1e9, "gb": 1e9, "gib": 2**30, "mb": 1e6, "mib": 2**20, "b": 1.0, "bytes": 1.0, "byte": 1.0}
LEAST_PEAK_SHARE = 1 / 150  # of the peak; the slowest genuine records reach a hundredth
OUT_OF_MEMORY = re.compile(r"\boom|out[ _-]?of[ _-]?mem")
FAILED = re.compile(r"fail|crash|error|abort|hang|hung|kill|time[ _-]?out|diverge|\bnan\b")
LARGEST_BYTES = 1e12  # more than any device has
LAST_STAGE_PATTERN = re.compile(r"last (?:pipeline )?(?:rank|stage)|tensorboard|world_size ?- ?1")
ADAPTERS_PATTERN = re.compile(r"\bq?lora\b|\bpeft\b|\badapters?\b", re.IGNORECASE)
FIRST_RANK_PATTERN = re.compile(r"rank[- _]?0|first (?:rank|stage)")
CountedAttention = Literal["causal", "full"]


class FlopsCounting(NamedTuple):
    """How a source counts FLOPs (see `step_flops`)."""

    attention: CountedAttention = "full"
    recomputed: bool = False


class MeasuredFigures(NamedTuple):
    """Measured figures of a record; None where it states none."""

    seconds: float | None
    memory_bytes: float | None
    memory_rank: str  # worst, first, last
    oom: bool
    doubts: tuple[str, ...] = ()  # printed figures that contradict those which are used


def measured_figures(
    record: PublishedRecord, module: Module, setup: LayoutColumns, counting: FlopsCounting, peak: float | None
) -> MeasuredFigures:
    """Figures of a record; `peak`: FLOP/s of its device in its precision, None if unknown. Raises UnusableRecord."""
    oom = ran_out_of_memory(record)
    if not oom and FAILED.search(record.text("status").lower()):
        raise UnusableRecord("the run failed", record.text("status"))
    times = seconds_by_column(record, setup)
    require_below_peak(record, None if times else peak)
    require_agreement(times)
    seconds = next((value for value, _ in times.values()), None) or seconds_from_flops(
        record, module, setup, counting, peak
    )
    require_possible_flops(module, setup, seconds, peak)
    memory = peak_memory_bytes(record, oom)
    if oom:
        return MeasuredFigures(None, memory, memory_rank(record), True)
    if seconds is None and memory is None:
        raise UnusableRecord("nothing measured", record.text("status"))
    return MeasuredFigures(seconds, memory, memory_rank(record), False, flops_doubts(record, module, setup, seconds))


def ran_out_of_memory(record: PublishedRecord) -> bool:
    """Whether a record's status says so."""
    return bool(OUT_OF_MEMORY.search(record.text("status").lower()))


def seconds_by_column(record: PublishedRecord, setup: LayoutColumns) -> dict[str, tuple[float, float]]:
    """Step seconds by the column that implies them, most direct first, with the relative rounding of each."""
    tokens = setup.batch * setup.seq
    work = {
        "step_time_s": None,
        "tokens_per_s_per_gpu": tokens / setup.ranks,
        "tokens_per_s_total": tokens,
        "samples_per_s": setup.batch,
    }
    times = {}
    for name, done in work.items():
        value = record.positive(name)
        if value is not None:
            times[name] = (value if done is None else done / value, relative_rounding(record.text(name)))
    return times


def relative_rounding(text: str) -> float:
    """Half a unit of the last printed digit, relative to the value."""
    digits = re.sub(r"[^0-9.]", "", re.split(r"[eE]", text)[0])
    whole, _, part = digits.partition(".")
    value = float(digits) if re.fullmatch(r"\d*\.?\d+", digits) else 0.0
    if not part:  # up to two trailing zeros of a whole number may be rounding
        zeros = len(whole) - len(whole.rstrip("0"))
        return 0.5 * 10 ** min(zeros, 2) / value if value else 0.0
    return 0.5 * 10 ** -len(part) / value if value else 0.0


def require_agreement(times: dict[str, tuple[float, float]]) -> None:
    """Raises UnusableRecord where two columns imply different step seconds."""
    names = list(times)
    for name in names[1:]:
        (first, blur), (second, other) = times[names[0]], times[name]
        ratio = max(first, second) / min(first, second)
        if ratio > (1 + AGREEMENT) * (1 + blur) * (1 + other):
            raise UnusableRecord("impossible figures", f"{names[0]} and {name} disagree: {first:.4g} s, {second:.4g} s")


def require_below_peak(record: PublishedRecord, peak: float | None) -> None:
    """Raises UnusableRecord for shares of the peak above 1, MFU above HFU, or FLOP/s above the device's peak, where
    that is given.
    """
    for name in ("mfu_pct", "hfu_pct"):
        share = record.positive(name)
        if share is not None and not 1 < share <= 100:  # at most 1 is a fraction written in place of percent
            raise UnusableRecord("impossible figures", f"{name}: {share:g}")
    mfu, hfu = record.positive("mfu_pct"), record.positive("hfu_pct")
    if mfu and hfu and mfu > hfu * (1 + AGREEMENT):
        raise UnusableRecord("impossible figures", f"MFU {mfu:g} above HFU {hfu:g}")
    rate = record.positive("tflops_per_gpu")
    if rate and peak and rate * 1e12 > peak * (1 + AGREEMENT):
        raise UnusableRecord("impossible figures", f"{rate:g} TFLOP/s on a device of {peak / 1e12:g}")


def seconds_from_flops(
    record: PublishedRecord, module: Module, setup: LayoutColumns, counting: FlopsCounting, peak: float | None
) -> float | None:
    """Step seconds from TFLOP/s, else from MFU or HFU, by the source's own FLOP count; None where neither is stated."""
    passes = 2 / 3 if trains_adapters_only(record) else 1.0  # adapters have no weight gradients
    ranks = float(setup.ranks)
    rate = record.positive("tflops_per_gpu")
    if rate:
        return passes * step_flops(module, setup, *counting) / (rate * 1e12 * ranks)
    for name, recomputed in (("mfu_pct", False), ("hfu_pct", True)):
        share = record.positive(name)
        if share and peak:
            return passes * step_flops(module, setup, counting.attention, recomputed) / (share / 100 * peak * ranks)
    return None


def require_possible_flops(module: Module, setup: LayoutColumns, seconds: float | None, peak: float | None) -> None:
    """Raises UnusableRecord where these step seconds imply FLOP/s that are not between a 150th of the device's peak and
    the peak.
    """
    if not seconds or not peak:
        return
    rate = step_flops(module, setup, "causal", False) / seconds / setup.ranks
    implied = f"{rate / 1e12:.4g} TFLOP/s in {seconds:.4g} s"
    if rate > peak * (1 + AGREEMENT):
        raise UnusableRecord("impossible figures", f"{implied}: above the device's peak")
    if rate < peak * LEAST_PEAK_SHARE:
        raise UnusableRecord("impossible figures", f"{implied}: a mistaken unit")


def flops_doubts(
    record: PublishedRecord, module: Module, setup: LayoutColumns, seconds: float | None
) -> tuple[str, ...]:
    """What is said where the printed TFLOP/s agree with these step seconds under no usual count: causal or full
    attention, with or without recomputation, and without weight gradients (a third) for adapters. Seconds are what was
    measured, and TFLOP/s what somebody counted.
    """
    printed = record.positive("tflops_per_gpu")
    if not seconds or not printed:
        return ()
    least, most = (
        step_flops(module, setup, *counting) / seconds / setup.ranks / 1e12
        for counting in (FlopsCounting("causal", False), FlopsCounting("full", True))
    )
    least *= 2 / 3 if trains_adapters_only(record) else 1.0
    if least * (1 - FLOPS_DEFINITIONS) <= printed <= most * (1 + FLOPS_DEFINITIONS):
        return ()
    return (f"{least:.4g} to {most:.4g} TFLOP/s in {seconds:.4g} s, {printed:g} as printed",)


def trains_adapters_only(record: PublishedRecord) -> bool:
    """Whether only low-rank adapters are trained."""
    return bool(ADAPTERS_PATTERN.search(f"{record.text('task')} {record.text('model')}"))


def peak_memory_bytes(record: PublishedRecord, oom: bool) -> float | None:
    """Peak bytes of a rank; of a record that ran out of memory, only a figure called a peak. Raises UnusableRecord."""
    value = record.positive("peak_mem")
    if value is None or (oom and "peak" not in record.text("mem_kind").lower()):
        return None
    unit = record.text("mem_unit").lower()
    if unit not in MEMORY_UNITS:
        raise UnusableRecord("unreadable number", f"mem_unit: {record.text('mem_unit')[:60]}")
    amount = value * MEMORY_UNITS[unit]
    if not unit and value > 1e6:
        amount = value
    if not 1e7 <= amount <= LARGEST_BYTES:
        raise UnusableRecord("impossible figures", f"peak_mem: {record.text('peak_mem')} {record.text('mem_unit')}")
    return amount


def memory_rank(record: PublishedRecord) -> str:
    """The rank whose peak the record states: worst, first or last."""
    text = f"{record.text('mem_kind')} {record.text('notes')}".lower()
    if LAST_STAGE_PATTERN.search(record.text("mem_kind").lower()):
        return "last"
    return "first" if FIRST_RANK_PATTERN.search(text) and "max over" not in text else "worst"


def step_flops(module: Module, setup: LayoutColumns, attention: CountedAttention, recomputed: bool) -> float:
    """FLOPs of a step on all ranks: three times forward's, as in Megatron-LM's num_floating_point_operations.

    `attention`: whether the half of QKᵀ and PV that the causal mask removes is counted (Narayanan et al.,
    arXiv 2104.04473, eq. 3; Korthikanti et al., arXiv 2205.05198, eq. 7) or not (Megatron-Core and Megatron-Bridge of
    2025). `recomputed`: counts the second forward of fully recomputed layers too (hardware FLOPs).
    """
    squared = matmul = 0.0
    for kind, count in kind_counts(module).items():
        pairs, per_token = layer_flops(module, kind)
        squared, matmul = squared + pairs * count, matmul + per_token * count
    squared *= 2.0 if attention == "full" else 1.0
    layers = squared * setup.seq + matmul
    passes = 3.0 + (setup.full_recompute if recomputed else 0.0)
    return float(setup.batch * setup.seq * (layers * passes + 3.0 * embedding_head_flops(module)))
