"""Schedules that a plan has slot by slot: one line for each pipeline rank, of slots such as `F0 F1 B0 I1 W1`.

Where ranks have several chunks of layers, a slot has its stage: `F3@9` is the forward of micro-batch 3 through stage 9,
which is chunk 9 // pp of rank 9 % pp.
"""

import re
from collections.abc import Iterator, Sequence

from planner.errors import InputError
from planner.plan.schedules import Slot, schedule_slots
from planner.plan.task import Phase

SLOT = re.compile(r"(?P<phase>[FBIW])(?P<row>[0-9]{1,9})(?:@(?P<stage>[0-9]{1,9}))?")
PHASES: dict[str, Phase] = {"F": "F", "B": "B", "I": "I", "W": "W"}
EXAMPLE = "write it like F0, B0, I0 or W0, and F0@5 where ranks have several chunks"


def resolve_slots(order: str | Sequence[str], ranks: int, micro_batches: int, chunks: int = 1) -> list[list[Slot]]:
    """Return the slots of each pipeline rank, of a schedule by name or of written lines. Raises InputError."""
    return (
        schedule_slots(order, ranks, micro_batches, chunks)
        if isinstance(order, str)
        else parse_slots(order, ranks, chunks)
    )


def parse_slots(lines: Sequence[str], ranks: int, chunks: int) -> list[list[Slot]]:
    """Parse one line for each pipeline rank. Raises InputError for the first slot that does not fit its rank."""
    if len(lines) != ranks:
        message = f"the order has {len(lines)} lines, and the pipeline {ranks} ranks"
        raise InputError(message, where="order", fix="write one line for each rank of the pipeline")
    return [[parse_slot(text, rank, ranks, chunks) for text in line.split()] for rank, line in enumerate(lines)]


def parse_slot(text: str, rank: int, ranks: int, chunks: int) -> Slot:
    """Parse one slot of a rank. Raises InputError."""
    where, match = f"order[{rank}]", SLOT.fullmatch(text)
    if not match:
        raise InputError(f"`{text}` is no slot", where=where, fix=EXAMPLE)
    if match["stage"] is None:
        if chunks > 1:
            stages = ", ".join(f"@{each}" for each in range(rank, ranks * chunks, ranks))
            raise InputError(f"`{text}` does not say which chunk", where=where, fix=f"add one of {stages}")
        return PHASES[match["phase"]], int(match["row"]), 0
    chunk, owner = divmod(int(match["stage"]), ranks)
    if owner != rank or chunk >= chunks:
        stages = ", ".join(map(str, range(rank, ranks * chunks, ranks)))
        message = f"`{text}` is on a stage that rank {rank} does not have"
        raise InputError(message, where=where, fix=f"its stages are {stages}")
    return PHASES[match["phase"]], int(match["row"]), chunk


def slot_lines(slots: Sequence[Sequence[Slot]], chunks: int = 1) -> tuple[str, ...]:
    """Format the slots of each rank as the lines of a plan file."""
    ranks = len(slots)

    def texts(rank: int) -> Iterator[str]:
        for phase, micro_batch, chunk in slots[rank]:
            yield f"{phase}{micro_batch}" + (f"@{chunk * ranks + rank}" if chunks > 1 else "")

    return tuple(" ".join(texts(rank)) for rank in range(ranks))
