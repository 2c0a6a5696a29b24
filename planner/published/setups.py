"""The parallelization strategy of a published record, as a setup that can be priced."""

import re
from typing import NamedTuple

from planner.costs.columns import Columns
from planner.published import arguments, moe
from planner.published.batches import batch
from planner.published.layout import Spread, spread
from planner.published.machines import precision
from planner.published.recompute import recompute, stated
from planner.published.rows import Row, Unusable
from planner.published.sharding import copies, zero
from planner.specs.layers import Module
from planner.specs.parallelism import Schedule

SCHEDULES: tuple[tuple[str, Schedule | None], ...] = (
    (r"\bv[- ]?(half|min)\b|dualpipe|bidirectional|chimera|hanayo|seq1f1b|terapipe", None),
    (r"zero[- ]?bubble|\bzb(?:[- ]?[hv]\d?|b|v)?\b|zbv", "zb_h1"),
    (r"gpipe|\bafab\b|all forward", "gpipe"),
    (r"interleav", "interleaved"),
)
SETTINGS = ("framework", "task", "precision", "recompute", "other_settings", "notes")
SEQUENCE_PARALLEL = re.compile(r"sequence[ _-]parallel\s*[=:]\s*(true|false|on|off)")


class Machine(NamedTuple):
    """Where a record ran: its device, its framework, and the ranks of a node."""

    device: str
    software: str
    per_node: int


def setup(record: Row, module: Module, machine: Machine) -> tuple[Columns, list[str]]:
    """The setup of a record, and the blank columns that were assumed. Raises UnusableRecord."""
    degrees = spread(record, module, machine.software)
    size = batch(record, degrees)
    stage, guessed_stage = zero(record, machine.software)
    dtype, guessed_precision = precision(record, machine.device)
    split, guessed_split = sequence_parallel(record, degrees, module, machine.software)
    full, parts = recompute(record, machine.software, module.layers / (degrees.pp * degrees.vpp))
    guesses = {
        "zero_stage": guessed_stage and degrees.dp * degrees.cp > 1,
        "precision": guessed_precision,
        "sp": guessed_split,
    }
    guesses |= {"recompute": not stated(record)}
    words = moe.said(settings(record), module)
    assumed = [*degrees.assumed, *size.assumed, *(name for name, guessed in guesses.items() if guessed)]
    columns = Columns(
        ranks=degrees.ranks,
        seq=size.seq,
        batch=size.batch,
        micro_batch=size.micro_batch,
        tp=degrees.tp,
        cp=degrees.cp,
        pp=degrees.pp,
        vpp=degrees.vpp,
        ep=degrees.ep,
        etp=degrees.etp,
        zero=stage,
        replica=copies(record, stage, degrees, machine.per_node),
        sequence_parallel=split,
        full=full,
        parts=parts,
        dtype=dtype,
        schedule=schedule(record, degrees),
        overlap=words.overlap,
        dispatch=words.dispatch,
        balanced=words.balanced,
    )
    return columns, assumed


def settings(record: Row) -> str:
    """The record's free-text columns, joined, in lower case."""
    return " | ".join(record.text(name) for name in SETTINGS if record.text(name)).lower()


def schedule(record: Row, degrees: Spread) -> Schedule:
    """The pipeline schedule. Raises UnusableRecord for one that has no cost model."""
    text = record.text("other_settings").lower()
    if degrees.pp == 1:
        return "1f1b"
    for words, name in SCHEDULES:
        if re.search(words, text):
            if name is None:
                raise Unusable("schedule not understood", record.text("other_settings")[:60])
            return name if name != "interleaved" or degrees.vpp > 1 else "1f1b"
    return "interleaved" if degrees.vpp > 1 else "1f1b"


def sequence_parallel(record: Row, degrees: Spread, module: Module, software: str) -> tuple[bool, bool]:
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
    if arguments.of(record):
        return module.routed is not None, False
    if software in ("megatron-2021", "deepspeed"):
        return False, False
    return True, degrees.tp > 1 and software not in ("torchtitan", "nemo") and module.routed is None
