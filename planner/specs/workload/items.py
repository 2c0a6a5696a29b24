"""Sizes of items: tokens in a module's layers, or its input units, of which several parts can make one item.

An item of several images is assigned as a whole, and attention stays within each image: it costs what they cost.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isqrt
from typing import Annotated, NamedTuple

import msgspec

from planner.specs.base import Count, Spec
from planner.specs.layers.audio import FRAMES_PER_TOKEN
from planner.specs.layers.stack import InputUnit, ModuleStack

PartCounts = Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]


class ItemSize(Spec):
    """The size of an item in its module's input unit: `{patches: 4096}`, `{patches: [1024, 256]}`, `{frames: 3000}`."""

    tokens: Count | None = None
    patches: Count | PartCounts | None = None  # of one image, or of each of several
    frames: Count | PartCounts | None = None  # of one clip, or of each of several
    # Rows and columns of patches of each part; empty: those nearest to a square. Of modules with places in two axes.
    grids: tuple[tuple[Count, Count], ...] = ()

    def __post_init__(self) -> None:
        given = [unit for unit in UNITS_PER_TOKEN if getattr(self, unit) is not None]
        if len(given) != 1:
            raise ValueError(
                f"an item's size is in one unit, not {' and '.join(given) or 'none'} | give one of {UNIT_NAMES}"
            )
        partial = [count for count in self.counts if count % UNITS_PER_TOKEN[self.unit]]
        if partial:
            rule = f"{UNITS_PER_TOKEN[self.unit]} {self.unit} are a token of the layers"
            raise ValueError(f"{partial[0]} {self.unit} are no whole tokens: {rule} | cut off, or add, what is over")
        within = tuple(height * width for height, width in self.grids)
        if within and (self.unit != "patches" or within != self.counts):
            shown = " + ".join(f"{height} x {width}" for height, width in self.grids)
            fix = "give rows and columns of each part, or leave grids out"
            raise ValueError(f"grids of {shown} are not the item's {self.unit} | {fix}")

    @property
    def unit(self) -> InputUnit:
        """The input unit that the size is in."""
        if self.patches is not None:
            return "patches"
        return "tokens" if self.frames is None else "frames"

    @property
    def counts(self) -> tuple[int, ...]:
        """The size of each part, in the unit."""
        count = getattr(self, self.unit)
        return count if isinstance(count, tuple) else (count,)


# Input units per token of the layers
UNITS_PER_TOKEN: dict[InputUnit, int] = {"tokens": 1, "patches": 1, "frames": FRAMES_PER_TOKEN}
UNIT_NAMES = ", ".join(UNITS_PER_TOKEN)
Size = Count | ItemSize


class Document(NamedTuple):
    """Tokens that attention stays within: a whole item, or a part of one."""

    item: int
    tokens: int
    begin: int = 0  # index of its first token in the item


class TokenGrid(NamedTuple):
    """Tokens of an item that are places of an image."""

    first: int  # index of its first token in the item
    height: int  # in tokens, as its width
    width: int


def part_lengths(size: int | ItemSize) -> tuple[int, ...]:
    """Return the tokens of each part; attention stays within a part."""
    return (size,) if isinstance(size, int) else tuple(count // UNITS_PER_TOKEN[size.unit] for count in size.counts)


def item_tokens(size: int | ItemSize) -> int:
    """Return the tokens of an item in the layers."""
    return size if isinstance(size, int) else sum(part_lengths(size))


def input_count(module: ModuleStack, size: int | ItemSize) -> int:
    """Return the size of an item in the input unit of its module."""
    return item_tokens(size) * UNITS_PER_TOKEN[module.input_unit]


def item_outputs(module: ModuleStack, size: int | ItemSize) -> int:
    """Return how many outputs of a module an item of this size has: each part its merged tokens, none for a class
    token.
    """
    parts = part_lengths(size)
    return (sum(parts) - module.class_tokens * len(parts)) // module.tokens_per_output


def item_grids(module: ModuleStack, size: int | ItemSize) -> tuple[TokenGrid, ...]:
    """Return the grid of each part of an item; none in a module whose tokens have no rows and columns."""
    if module.position_axes != 2:
        return ()
    lengths = part_lengths(size)
    given = size.grids if isinstance(size, ItemSize) else ()
    grids = given or [near_square(length, module.tokens_per_output) for length in lengths]
    starts = accumulate(lengths, initial=0)
    return tuple(TokenGrid(first, *grid) for first, grid in zip(starts, grids, strict=False))


def output_grids(module: ModuleStack, size: int | ItemSize) -> tuple[TokenGrid, ...]:
    """Return the grids of an item's outputs, each of merged tokens of a grid."""
    unit = module.tokens_per_output
    side = isqrt(unit)
    return tuple(
        TokenGrid(first // unit, height // side, width // side) for first, height, width in item_grids(module, size)
    )


def near_square(tokens: int, unit: int) -> tuple[int, int]:
    """Return rows and columns of this many tokens, of whole squares of `unit` tokens, as near to a square as they
    can be.
    """
    squares, side = tokens // unit, isqrt(unit)
    height = next((height for height in range(isqrt(squares), 0, -1) if squares % height == 0), 0)
    return height * side, (squares // height if height else 0) * side


def size_faults(module: ModuleStack, name: str, size: int | ItemSize) -> Iterator[tuple[str, str]]:
    """Yield what is wrong and what to do where the module `name` cannot have an item of this size."""
    if isinstance(size, ItemSize) and size.unit != module.input_unit:
        yield f"the item's size is in {size.unit}, and `{name}` reads {module.input_unit}", f"give {module.input_unit}"
        return
    side = isqrt(module.tokens_per_output)
    for height, width in size.grids if isinstance(size, ItemSize) else ():
        if module.position_axes != 2:
            yield f"patches of `{name}` have no rows and columns", "leave out grids"
        elif height % side or width % side:
            yield (
                f"{height} x {width} patches are no whole outputs: {side} x {side} become one",
                f"give it multiples of {side} rows and columns",
            )
    for part in part_lengths(size):
        if part <= module.class_tokens:
            yield f"a part of {part} tokens is a class token and no output", "give it a patch more at least"
        if part % module.tokens_per_output:
            each = f"{module.tokens_per_output} tokens of `{name}` become one output"
            yield (
                f"{part} tokens are no whole outputs: {each}",
                f"give it a multiple of {module.tokens_per_output} tokens",
            )


def packed_documents(items: Sequence[int], parts: Sequence[Sequence[int]]) -> tuple[Document, ...]:
    """Return the documents of items, whose parts have these lengths in tokens, in packed order."""
    return tuple(
        Document(item, length, sum(lengths[:at]))
        for item, lengths in zip(items, parts, strict=True)
        for at, length in enumerate(lengths)
    )
