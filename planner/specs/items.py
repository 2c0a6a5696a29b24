"""How long an item is: tokens of a module's layers; or what the module reads, of which several parts can be one item.

An item of several images goes where they go together, and attention stays within each: it costs what they cost.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from planner.specs.base import Count, Spec
from planner.specs.layers.audio import STRIDE
from planner.specs.layers.stack import Reads, Stack

Parts = Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]


class ItemSize(Spec):
    """An item in the unit of what its module reads: `{patches: 4096}`, `{patches: [1024, 256]}`, `{frames: 3000}`."""

    tokens: Count | None = None
    patches: Count | Parts | None = None  # of one image, or of each of several
    frames: Count | Parts | None = None  # of one clip, or of each of several

    def __post_init__(self) -> None:
        said = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(said) != 1:
            raise ValueError(f"an item's size is in one unit, not {' and '.join(said) or 'none'} | say one of {EITHER}")
        odd = [count for count in self.counts if count % UNITS[self.unit]]
        if odd:
            rule = f"{UNITS[self.unit]} {self.unit} are a token of the layers"
            raise ValueError(f"{odd[0]} {self.unit} are no whole tokens: {rule} | cut off, or add, what is over")

    @property
    def unit(self) -> Reads:
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def counts(self) -> tuple[int, ...]:
        """Of each part, in the unit."""
        said = getattr(self, self.unit)
        return said if isinstance(said, tuple) else (said,)


UNITS: dict[Reads, int] = {"tokens": 1, "patches": 1, "frames": STRIDE}  # how many are one token of the layers
EITHER = ", ".join(UNITS)
Size = Count | ItemSize


class Document(NamedTuple):
    """Tokens that attend to each other alone: a whole item, or a part of one."""

    item: int
    tokens: int
    begin: int = 0  # token of the item that is its first


def lengths_of(size: int | ItemSize) -> tuple[int, ...]:
    """Tokens of each part, between which attention never crosses."""
    return (size,) if isinstance(size, int) else tuple(count // UNITS[size.unit] for count in size.counts)


def tokens_of(size: int | ItemSize) -> int:
    """What layers work on."""
    return size if isinstance(size, int) else sum(lengths_of(size))


def size_faults(module: Stack, name: str, size: int | ItemSize) -> Iterator[tuple[str, str]]:
    """What is wrong, and what to do, where a module called so cannot have an item of this size."""
    if isinstance(size, ItemSize) and size.unit != module.reads:
        yield f"the item's size is in {size.unit}, and `{name}` reads {module.reads}", f"say {module.reads}"
        return
    for part in lengths_of(size):
        if part % module.merged:
            each = f"{module.merged} tokens of `{name}` become one output"
            yield f"{part} tokens are no whole outputs: {each}", f"give it a multiple of {module.merged} tokens"


def documents_of(items: Sequence[int], parts: Sequence[Sequence[int]]) -> tuple[Document, ...]:
    """Items with the tokens of their parts, one after the other."""
    return tuple(
        Document(item, length, sum(lengths[:at]))
        for item, lengths in zip(items, parts, strict=True)
        for at, length in enumerate(lengths)
    )
