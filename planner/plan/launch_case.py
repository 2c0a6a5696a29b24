"""Layouts as the rules of a framework see them: one, or a million as columns of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from planner.specs.framework.knobs import RECOMPUTE_KINDS, Knobs
from planner.specs.layers import Module
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import PART_SETS, Dispatch, Parallelism, Schedule

Number = Any  # an int64, or an array (layouts,) of them
Truth = Any  # a truth value, or an array (layouts,) of them
NUMERIC_FIELDS = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "dp", "replica", "zero", "micro_batch")
DEGREES = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "micro_batch")  # without dp: it is the rest
# Fields that are words, or sets of words, as places among these.
CODED_FIELDS: dict[str, tuple[Any, ...]] = {
    "recompute": (*RECOMPUTE_KINDS, *PART_SETS),
    "dispatch": get_args(Dispatch),
    "schedule": get_args(Schedule),
}
# What fields are where nobody decided them: degrees of 1, all_to_all, and 1F1B, or interleaved where there are chunks.
USUAL_VALUES = {"ulysses": 1, "replica": 1, "dispatch": 0, "schedule": 0}


class UndecidedError(Exception):
    """A rule asked for a field that is not decided."""


@dataclass(frozen=True, slots=True)
class TrainedFacts:
    """What the rules ask of a module and of its batch. None, where sequences differ: frameworks pack or pad those."""

    ranks: int
    layers: int
    heads: int
    kv_heads: int
    tied: bool  # the head shares the embedding's weights
    sequences: int | None = None  # of a step
    tokens: int | None = None  # of each sequence


def trained_facts(module: Module, ranks: int, sizes: tuple[int, ...] = ()) -> TrainedFacts:
    """The facts of a module on so many ranks, with the tokens of each of a step's sequences."""
    equal = len(set(sizes)) == 1
    return TrainedFacts(
        ranks=ranks,
        layers=module.layers,
        heads=module.heads,
        kv_heads=kv_heads(module),
        tied=any(end.tied for end in module.embedding_head),
        sequences=len(sizes) if equal else None,
        tokens=sizes[0] if equal else None,
    )


@dataclass(frozen=True, slots=True)
class LaunchCase:
    """Layouts, what they train, and the knobs that they are judged by. `at["tp"]` is a field that is a number."""

    columns: Mapping[str, Number]
    options: Parallelism  # the fields that are no numbers, the same for all
    facts: TrainedFacts
    knobs: Knobs

    def __getitem__(self, name: str) -> Number:
        """Raises UndecidedError where nobody decided it."""
        if name in self.columns:
            return self.columns[name]
        if name in USUAL_VALUES:
            return np.int64(USUAL_VALUES[name])
        if name == "dp":
            return np.maximum(1, self.facts.ranks // (self["tp"] * self["cp"] * self["pp"] * self["replica"]))
        raise UndecidedError(name)

    @property
    def data_ranks(self) -> Number:
        """Ranks that hold the same dense parameters before ZeRO shards them."""
        return self["dp"] * self["cp"] * self["replica"]

    @property
    def micro_batches(self) -> Number:
        """Micro-batches of a replica in a step, of equal sequences. Raises UndecidedError where they are not equal."""
        if self.facts.sequences is None:
            raise UndecidedError("sequences")
        return -(-self.facts.sequences // (self["dp"] * self["replica"] * self["micro_batch"]))

    @property
    def tokens(self) -> int:
        """Tokens of each sequence. Raises UndecidedError where they are not equal."""
        if self.facts.tokens is None:
            raise UndecidedError("tokens")
        return self.facts.tokens


def case_of_columns(
    columns: Mapping[str, NDArray[np.int64]], fixed: Parallelism, facts: TrainedFacts, knobs: Knobs
) -> LaunchCase:
    """Many layouts: columns of what differs, (layouts,) each, and what a job fixes of all."""
    numbers = {**numbers_of(fixed), **{name: np.asarray(column) for name, column in columns.items()}}
    return LaunchCase(numbers, fixed, facts, knobs)


def case_of(layout: Parallelism, facts: TrainedFacts, knobs: Knobs) -> LaunchCase:
    """One layout, whose fields may be undecided."""
    return LaunchCase(numbers_of(layout), layout, facts, knobs)


def with_defaults(at: LaunchCase) -> LaunchCase:
    """One layout with the defaults of what nobody decided, for texts that say more than the condition asked."""
    ones = dict.fromkeys(DEGREES, np.int64(1))
    return replace(at, columns={**ones, "zero": np.int64(0), "recompute": np.int64(0), **at.columns})


def numbers_of(layout: Parallelism) -> dict[str, Number]:
    """The decided fields of a layout as numbers."""
    found = {name: getattr(layout, name) for name in NUMERIC_FIELDS}
    for name, words in CODED_FIELDS.items():
        word = getattr(layout, name)
        if word is not None:
            found[name] = words.index("ranges" if isinstance(word, dict) else word)
    return {name: np.int64(value) for name, value in found.items() if value is not None}
