"""Facts that a source leaves blank, filled from a shipped file in which each fact has its citation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from planner import files
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.base import Spec, with_fields
from planner.specs.library import shipped_folder


class FillRule(Spec, kw_only=True):
    """Cells to fill in the records that `where` matches."""

    fill: dict[str, str] = {}  # column to value; only blank cells are filled
    replace: bool = False  # overwrites stated cells too: the source is mistaken, or uses another name
    add: dict[str, str] = {}  # column to words that are added to its cell
    drop: tuple[str, ...] = ()  # columns to blank: measured, but by another definition
    certain: bool = False  # the source says so elsewhere: its facts are stated, no defaults
    skip: bool = False  # these records are skipped
    software: str = ""  # the framework that these ran with, a name in profiles/software
    where: dict[str, str] = {}  # column to a pattern that the whole cell must match, ignoring case
    because: str  # citation of the fact


class SourceDefaults(Spec, kw_only=True):
    """A file `profiles/published/*.yaml`: the facts that one or more sources leave blank."""

    FORMAT: ClassVar[str] = "planner.published/1"
    format: str
    sources: tuple[str, ...]  # values of source_id, or file names without suffix
    about: str
    software: str = ""  # a name in profiles/software; empty: from the record's framework column
    attention: Literal["causal", "full"] = "full"  # how its TFLOP/s count attention
    recomputed: bool = False  # its TFLOP/s count recomputation (hardware FLOPs)
    memory_rank: Literal["", "worst", "first", "last"] = ""
    memory_figure: Literal["", "allocated", "reserved", "total"] = ""  # what its peaks count, where not the framework's
    fills: tuple[FillRule, ...] = ()


EVERY_SOURCE = "*"  # stands for every source: facts such as the shapes of named models
NO_DEFAULTS = SourceDefaults(format=SourceDefaults.FORMAT, sources=(), about="")


def defaults_of_source(record: PublishedRecord) -> SourceDefaults:
    """The rules of the record's source, then those that hold for every source. Raises InputError."""
    known = defaults_by_source()
    own = known.get(record.source) or known.get(record.file.removesuffix(".csv")) or NO_DEFAULTS
    every = known.get(EVERY_SOURCE)
    return with_fields(own, fills=own.fills + every.fills) if every else own


@lru_cache(maxsize=1)
def defaults_by_source() -> Mapping[str, SourceDefaults]:
    """Every shipped file, by the sources it names."""
    read = [files.read(path, SourceDefaults) for path in sorted((shipped_folder() / "published").glob("*.yaml"))]
    return {name: each for each in read for name in each.sources}


@dataclass(frozen=True, slots=True)
class FilledRecord:
    """A record with its blank cells filled, and the names of the columns that were."""

    record: PublishedRecord
    filled_columns: tuple[str, ...]
    software: str  # empty: from the record's framework column


def fill_defaults(record: PublishedRecord, known: SourceDefaults) -> FilledRecord:
    """The record with the rules applied. Raises UnusableRecord where a rule says to skip it."""
    names: list[str] = []
    software = known.software
    for rule in known.fills:
        where = ((words, record.text(name)) for name, words in rule.where.items())
        if not all(re.fullmatch(words, cell, re.IGNORECASE) for words, cell in where):
            continue
        if rule.skip:
            raise UnusableRecord("mistaken in the source", rule.because)
        values = {name: value for name, value in rule.fill.items() if rule.replace or not record.stated(name)}
        added = {name: f"{record.text(name)}; {words}".removeprefix("; ") for name, words in rule.add.items()}
        record = record.with_cells({**values, **added, **dict.fromkeys(rule.drop, "")})
        names += [name for name in (*values, *added) if name not in names and not rule.certain]
        software = rule.software or software
    return FilledRecord(record, tuple(names), software)
