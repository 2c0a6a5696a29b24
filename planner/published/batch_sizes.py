"""Sequence length, global batch and micro-batch of a published record."""

import re
from typing import NamedTuple

from planner.published.implied_cells import step_tokens
from planner.published.rank_degrees import RankDegrees
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.published.unequal_lengths import UNEQUAL

ROUNDING = 0.01  # relative rounding of printed figures
USUAL_TOKENS = 4e6  # of a step in pretraining (arXiv 2302.13971, table 2; 2307.09288, table 1)
SIZE_SUFFIXES = {"": 1, "k": 1024, "m": 1024**2}


class BatchSizes(NamedTuple):
    """Tokens of a sequence, sequences of a step and of a micro-batch; `assumed`: blank columns that were filled in."""

    seq: int
    batch: int
    micro_batch: int
    assumed: tuple[str, ...]


def batch_sizes(record: PublishedRecord, layout: RankDegrees) -> BatchSizes:
    """Batch sizes, where blank from the figures that imply them, or as is usual where only rates were measured: a
    step's seconds tell nothing without a batch. Raises UnusableRecord.
    """
    seq, size = sequence_length(record), record.count("gbs")
    micro, steps = record.count("mbs"), record.count("grad_accum")
    assumed: list[str] = []
    if size is not None and micro is None and steps is not None and size % (layout.dp * steps) == 0:
        micro = size // (layout.dp * steps)
    known = micro is not None or steps is not None
    if micro is None:
        micro, assumed = 1, ["mbs"]
    if size is None and steps is None:
        size, assumed = batch_from_throughput(record, seq, layout.dp * micro), [*assumed, "gbs"]
    if size is None:
        if steps is None:
            if record.stated("step_time_s") and (layout.pp > 1 or not known):
                raise UnusableRecord("batch not stated", "gbs, which a step's seconds depend on")
            usual = 1 if known and layout.pp == 1 else round(USUAL_TOKENS / (seq * layout.dp * micro))
            steps = max(layout.pp, usual)
        size = layout.dp * micro * steps
    if size % (layout.dp * micro):
        detail = f"{size} sequences in micro-batches of {micro} on {layout.dp} replicas"
        raise UnusableRecord("layout does not multiply up", detail)
    return BatchSizes(seq, size, micro, tuple(assumed))


def batch_from_throughput(record: PublishedRecord, seq: int, unit: int) -> int | None:
    """Sequences of a step that its printed seconds and tokens per second imply, if near a multiple of `unit`."""
    tokens = step_tokens(record)
    if not tokens:
        return None
    size = tokens / seq
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
        raise UnusableRecord(UNEQUAL if varied else "unreadable number", f"seq_len: {text[:60]}")
    seq = int(float(match[1]) * SIZE_SUFFIXES[match[2]])
    if not 1 <= seq <= 10**9:
        raise UnusableRecord("unreadable number", f"seq_len: {text[:60]}")
    return seq
