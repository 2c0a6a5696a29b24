"""Sequence length, global batch and micro-batch of a published record."""

import re
from typing import NamedTuple

from planner.published.rank_degrees import RankDegrees
from planner.published.record_files import PublishedRecord, UnusableRecord

ROUNDING = 0.01  # relative rounding of printed figures
SIZE_SUFFIXES = {"": 1, "k": 1024, "m": 1024**2}


class BatchSizes(NamedTuple):
    """Tokens of a sequence, sequences of a step and of a micro-batch; `assumed`: blank columns that were filled in."""

    seq: int
    batch: int
    micro_batch: int
    assumed: tuple[str, ...]


def batch_sizes(record: PublishedRecord, layout: RankDegrees) -> BatchSizes:
    """Batch sizes, where blank from the figures that imply them. Raises UnusableRecord."""
    seq, size = sequence_length(record), record.count("gbs")
    micro, steps = record.count("mbs"), record.count("grad_accum")
    assumed: list[str] = []
    if size is None and micro is None and not (record.stated("step_time_s") and record.stated("tokens_per_s_total")):
        raise UnusableRecord("batch not stated", "neither gbs nor mbs")
    if size is not None and micro is None and steps is not None and size % (layout.dp * steps) == 0:
        micro = size // (layout.dp * steps)
    if micro is None:
        micro, assumed = 1, ["mbs"]
    if size is None and steps is None:
        size = batch_from_throughput(record, seq, layout.dp * micro)
        assumed += ["gbs"] if size else []
    if size is None:
        if steps is None:
            if layout.pp > 1:
                raise UnusableRecord("batch not stated", "gbs, with pipeline stages to fill")
            steps, assumed = 1, [*assumed, "gbs"]
        size = layout.dp * micro * steps
    if size % (layout.dp * micro):
        detail = f"{size} sequences in micro-batches of {micro} on {layout.dp} replicas"
        raise UnusableRecord("layout does not multiply up", detail)
    return BatchSizes(seq, size, micro, tuple(assumed))


def batch_from_throughput(record: PublishedRecord, seq: int, unit: int) -> int | None:
    """Sequences of a step that its printed seconds and tokens per second imply, if near a multiple of `unit`."""
    seconds, rate = record.positive("step_time_s"), record.positive("tokens_per_s_total")
    if not seconds or not rate:
        return None
    size = seconds * rate / seq
    nearest = round(size / unit) * unit
    return nearest if nearest and abs(size / nearest - 1) < ROUNDING else None


def sequence_length(record: PublishedRecord) -> int:
    """Tokens of a sequence. Raises UnusableRecord."""
    text = record.stated("seq_len").lower().replace(",", "")
    if not text:
        raise UnusableRecord("sequence length not stated")
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([km]?)(?:\s*tokens)?", text)
    if not match:
        varied = re.search(r"max|var|avg|mean|up to|mix|-|~|\+", text)
        raise UnusableRecord(
            "sequences of different lengths" if varied else "unreadable number", f"seq_len: {text[:60]}"
        )
    seq = int(float(match[1]) * SIZE_SUFFIXES[match[2]])
    if not 1 <= seq <= 10**9:
        raise UnusableRecord("unreadable number", f"seq_len: {text[:60]}")
    return seq
