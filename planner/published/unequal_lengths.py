"""Sequences of unequal lengths, as a record states them: a mean and a maximum, or a data set whose lengths are known.

Layers cost by the token and attention by the pair of tokens, so that n sequences of lengths s stand for as many tokens
and pairs as Σs/l sequences of l = Σs²/Σs tokens each. Where a mean m and a maximum are all that is known, l lies
between them.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from planner.costs import LayoutColumns
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.workload.distributions import lengths_at

UNEQUAL = "sequences of different lengths"
VARIABLE = re.compile(r"variable|var-?len|packed lengths|mixed lengths")
UNLIKE_GROUPS = re.compile(r"flexsp|hotspa|bytescale|hydraulis")
AMOUNT = r"(\d{1,9}(?:\.\d+)?) ?([km]?)\b"
LONGEST = re.compile(
    rf"(?:max(?:imum)?|up to|longest|at most|≤|<=)[ :=]*{AMOUNT}|{AMOUNT} ?\(?max(?:imum)?\b(?![ :=]*\d)"
    rf"|\d ?[km]? ?(?:-|–|to) ?{AMOUNT}"
)
MEAN = re.compile(rf"(?:mean|avg|average)[ :=]*{AMOUNT}|{AMOUNT} ?\(?(?:mean|avg|average)\b(?![ :=]*\d)")
PACKED = re.compile(r"\bpack(?:ed|ing)\b")
SUFFIXES = {"": 1, "k": 1024, "m": 1024**2}
# Data sets, and the distribution of their lengths (specs/workload/distributions.py).
DATA_SETS = (
    (r"wikipedia", "wikipedia"),
    (r"\bgithub\b", "github"),
    (r"\bbyted\b", "byted"),
)
SHARES = 2**17  # quantiles over which moments are taken
LONG = 32768  # tokens: longer sequences are divided over ranks, by a degree that nothing but the record tells


@dataclass(frozen=True, slots=True)
class UnequalLengths:
    """What is known of the lengths of sequences, in tokens."""

    mean: float
    equals: tuple[float, ...]  # lengths of equal sequences that may stand for them, with as many tokens
    longest: int | None
    packed: bool  # micro-batches are packed up to the longest

    def in_record(self, record: PublishedRecord) -> PublishedRecord:
        """The record of as many sequences of the mean length, with its rate of samples as one of tokens. Raises
        UnusableRecord.
        """
        rate, cells = record.positive("samples_per_s"), {"seq_len": str(max(1, round(self.mean)))}
        if rate:
            cells |= {"samples_per_s": "", "tokens_per_s_total": f"{rate * self.mean:.12g}"}
        return record.with_cells(cells)

    def columns(self, at: LayoutColumns) -> tuple[LayoutColumns, ...]:
        """Setups of equal sequences that the setup of mean ones may be."""
        tokens, each = at.batch * at.seq, at.micro_batch * at.seq
        if self.packed and self.longest:
            own = tokens / at.pipelines
            each = own / np.ceil(own / self.longest)
        return tuple(
            replace(
                at,
                seq=seq,
                batch=tokens / seq,
                micro_batch=each / seq,
                cross_pairs=at.cross_pairs * at.seq / seq,
                alike={},
            )
            for seq in self.equals
        )

    def longest_alone(self, at: LayoutColumns) -> LayoutColumns:
        """The setup of one micro-batch with the longest sequence, which a layout has to hold whenever it comes."""
        if self.longest is None:
            return at
        return replace(at, seq=float(self.longest), batch=at.pipelines, micro_batch=1.0, alike={})


def unequal_lengths(record: PublishedRecord) -> UnequalLengths | None:
    """What a record states of unequal lengths; None where all are equal. Raises UnusableRecord where that is too
    little, or where its framework trains in groups of unlike degrees.
    """
    text = re.sub(r"(?<=\d),(?=\d{3})", "", record.stated("seq_len").lower())
    mean, longest = (amount_of(words, text) for words in (MEAN, LONGEST))
    varies = VARIABLE.search(record.text("task").lower())
    if mean is None and longest is None and not varies:
        return None
    if UNLIKE_GROUPS.search(record.text("framework").lower()):
        detail = "groups of unlike degrees in one step: planner solve, strategy sequence_groups"
        raise UnusableRecord("strategy without a closed form", detail)
    settings = record.text("other_settings").lower()
    name = next((name for words, name in DATA_SETS if re.search(words, settings)), None)
    packed = bool(PACKED.search(settings))
    if text.isdigit():
        if packed and name is None:  # packs, each as long as it says
            return None
        longest = float(text)
    most = int(longest) if longest else None
    if mean is not None:
        equals = (mean, float(longest)) if longest and longest > mean else (mean,)
        return UnequalLengths(mean, equals, most, packed)
    if name is None:
        raise UnusableRecord(UNEQUAL, "neither their mean nor a data set of known lengths")
    mean, equal = moments(name, most)
    return UnequalLengths(mean, (equal,), most, packed)


def require_undivided(lengths: UnequalLengths) -> None:
    """Raises UnusableRecord where sequences are so long that a layout which is not stated divides them."""
    if (lengths.longest or 0) > LONG:
        detail = f"the degree that divides sequences of up to {lengths.longest} tokens"
        raise UnusableRecord("layout not stated", detail)


def amount_of(words: re.Pattern[str], text: str) -> float | None:
    """The first amount of tokens that these words state."""
    found = words.search(text)
    if not found:
        return None
    number, suffix = next((found[at], found[at + 1]) for at in range(1, len(found.groups()), 2) if found[at])
    return float(number) * SUFFIXES[suffix]


@lru_cache(maxsize=64)
def moments(name: str, longest: int | None) -> tuple[float, float]:
    """Mean length of a data set's sequences up to the longest that are taken, and Σs²/Σs."""
    lengths = np.array(lengths_at(name, (np.arange(SHARES) + 0.5) / SHARES), dtype=np.float64)
    taken = lengths if longest is None else lengths[lengths <= longest]
    if not len(taken):
        raise UnusableRecord(UNEQUAL, f"none of {name} has at most {longest} tokens")
    return float(taken.mean()), float((taken * taken).sum() / taken.sum())
