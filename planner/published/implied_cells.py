"""Cells that a record leaves blank and that its other cells imply, or that are usual for its model.

Tokens of a step follow from two figures of one step: its seconds, and tokens or samples a second. Ranks follow from
nodes, from degrees, or from a rate of all ranks over that of one.
"""

import re

from planner.published.model_names import plain_words
from planner.published.platforms import device_name, node_ranks
from planner.published.record_files import PublishedRecord, UnusableRecord

ROUNDING = 0.02  # relative rounding of printed figures, from which a whole number follows
NODES_PATTERN = re.compile(r"\b(\d{1,5})\s*[x×]?\s*(?:nodes?|servers?|machines?|hosts?)\b", re.IGNORECASE)
DEGREES = ("tp", "cp", "pp")
PLACING_COLUMNS = ("system", "other_settings", "notes")  # which may say on how many nodes a record ran
# Tokens of a sequence in pretraining, where a record of a model says none: the models' papers.
USUAL_LENGTHS: tuple[tuple[str, int], ...] = (
    (r"llama [34]\b|\bk 2\b", 8192),  # arXiv 2407.21783, section 3.4.1: 8K until its last stages
    (r"llama 2\b|code ?llama", 4096),  # arXiv 2307.09288, table 1
    (r"mixtral|mistral", 8192),  # arXiv 2310.06825, table 1
    (r"qwen [23]\b", 4096),  # arXiv 2412.15115, section 3.3; 2505.09388, section 3.2
    (r"deep ?seek|moonlight|kimi", 4096),  # arXiv 2412.19437, section 4.2
    (r"nemotron", 4096),  # arXiv 2402.16819, section 2
    (r"intern ?lm", 2048),  # InternLM's configuration of 7B
    (r"llama|gpt|mpt|opt\b|bloom|megatron|turing", 2048),  # arXiv 2302.13971; 2005.14165, table 2.1; 2211.05100
)


def with_implied_cells(record: PublishedRecord) -> tuple[PublishedRecord, tuple[str, ...]]:
    """The record with blank numbers of ranks, sequence lengths and batches filled in, and the columns that are only
    usual, so assumed. Raises UnusableRecord for cells that cannot be read.
    """
    record = with_cell(record, "n_gpus", implied_ranks(record))
    length = None if record.stated("seq_len") else implied_length(record) or usual_length(record)
    assumed = ("seq_len",) if length and not implied_length(record) else ()
    record = with_cell(record, "seq_len", length)
    return with_cell(record, "gbs", implied_batch(record)), assumed


def with_cell(record: PublishedRecord, name: str, value: int | None) -> PublishedRecord:
    """The record with this number where its cell is blank."""
    return record if value is None or record.stated(name) else record.with_cells({name: str(value)})


def implied_ranks(record: PublishedRecord) -> int | None:
    """Ranks by the rates of all and of one, by nodes of a known device, or by every degree."""
    every, one = record.positive("tokens_per_s_total"), record.positive("tokens_per_s_per_gpu")
    if every and one:
        return whole(every / one)
    nodes = next(filter(None, map(NODES_PATTERN.search, map(record.text, PLACING_COLUMNS))), None)
    if nodes:
        try:
            return int(nodes[1]) * (record.count("gpus_per_node") or min(8, node_ranks(record, device_name(record))))
        except UnusableRecord:
            return None
    dp = record.degree("dp")
    if dp is None:
        return None
    for name in DEGREES:
        dp *= record.degree(name) or 1
    return dp


def step_tokens(record: PublishedRecord) -> float | None:
    """Tokens of a step, by its seconds and its rate."""
    seconds, ranks = record.positive("step_time_s"), record.count("n_gpus")
    every, one = record.positive("tokens_per_s_total"), record.positive("tokens_per_s_per_gpu")
    rate = every or (one * ranks if one and ranks else None)
    return seconds * rate if seconds and rate else None


def implied_length(record: PublishedRecord) -> int | None:
    """Tokens of a sequence, by those of a step and its sequences."""
    tokens, sequences = step_tokens(record), record.count("gbs")
    return whole(tokens / sequences / 128, 128) if tokens and sequences else None


def implied_batch(record: PublishedRecord) -> int | None:
    """Sequences of a step, by its seconds and samples a second."""
    seconds, rate = record.positive("step_time_s"), record.positive("samples_per_s")
    return whole(seconds * rate) if seconds and rate else None


def usual_length(record: PublishedRecord) -> int | None:
    """Tokens of a sequence in the pretraining of its model."""
    text = plain_words(record.text("family"), record.text("model"))
    return next((length for words, length in USUAL_LENGTHS if re.search(words, text)), None)


def whole(value: float, unit: int = 1) -> int | None:
    """The whole number of units that a printed figure is of; None where it is near none."""
    nearest = round(value)
    return nearest * unit if nearest and abs(value / nearest - 1) < ROUNDING else None
