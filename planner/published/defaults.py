"""What a source leaves unsaid, filled from a shipped file in which each fact has its citation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from planner import files
from planner.published.rows import Row, Unusable
from planner.specs.base import Spec, changed
from planner.specs.library import shipped


class Fill(Spec, kw_only=True):
    """Cells of the records whose cells match."""

    fill: dict[str, str] = {}  # column to value; only blank cells are filled
    replace: bool = False  # fills cells that say something too: the source itself is mistaken, or names it otherwise
    drop: tuple[str, ...] = ()  # columns whose cells are made blank: measured, but not what others call so
    skip: bool = False  # the records are not predicted
    software: str = ""  # a file of profiles/software that ran these records
    where: dict[str, str] = {}  # column to the pattern that its whole cell must match, capitals or not
    because: str  # where the fact stands


class Defaults(Spec, kw_only=True):
    """`profiles/published/*.yaml`."""

    FORMAT: ClassVar[str] = "planner.published/1"
    format: str
    sources: tuple[str, ...]  # values of source_id, or names of files without their ending
    about: str
    software: str = ""  # a file of profiles/software; empty: by the row's framework
    attention: Literal["causal", "full"] = "full"  # how its TFLOP/s count attention
    recomputed: bool = False  # its TFLOP/s count what is recomputed
    memory_rank: Literal["", "worst", "first", "last"] = ""
    fills: tuple[Fill, ...] = ()


EVERY = "*"  # the source of facts that hold whoever ran it, such as shapes of named models
NO_DEFAULTS = Defaults(format=Defaults.FORMAT, sources=(), about="")


def defaults(record: Row) -> Defaults:
    """Of the row's source, then those that hold for every source. Raises InputError."""
    known = by_name()
    own = known.get(record.source) or known.get(record.file.removesuffix(".csv")) or NO_DEFAULTS
    every = known.get(EVERY)
    return changed(own, fills=own.fills + every.fills) if every else own


@lru_cache(maxsize=1)
def by_name() -> Mapping[str, Defaults]:
    read = [files.read(path, Defaults) for path in sorted((shipped() / "published").glob("*.yaml"))]
    return {name: each for each in read for name in each.sources}


@dataclass(frozen=True, slots=True)
class Filled:
    """A record with its blanks filled, and which columns were."""

    row: Row
    names: tuple[str, ...]
    software: str  # empty: by the row's framework


def filled(record: Row, known: Defaults) -> Filled:
    """Raises Unusable for records that the source's file says to skip."""
    names: list[str] = []
    software = known.software
    for rule in known.fills:
        if not all(re.fullmatch(words, record.text(name), re.IGNORECASE) for name, words in rule.where.items()):
            continue
        if rule.skip:
            raise Unusable("mistaken in the source", rule.because)
        values = {name: value for name, value in rule.fill.items() if rule.replace or not record.stated(name)}
        record = record.filled({**values, **dict.fromkeys(rule.drop, "")})
        names += [name for name in values if name not in names]
        software = rule.software or software
    return Filled(record, tuple(names), software)
