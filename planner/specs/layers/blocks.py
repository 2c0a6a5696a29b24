"""What layers are made of: blocks, each with a norm in front of it and the residual around it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeVar

from planner.errors import InputError

T = TypeVar("T")

Block = Literal["attention", "mlp", "experts", "state_space", "cross_attention"]
LETTERS: dict[str, Block] = {"M": "state_space", "*": "attention", "-": "mlp", "E": "experts"}  # of a pattern
LayerKind = str  # a usual one by its name, any other by its blocks: `attention+mlp`
USUAL: dict[LayerKind, tuple[Block, ...]] = {
    "dense": ("attention", "mlp"),
    "moe": ("attention", "experts"),
    "encoder": ("attention", "mlp"),
    "cross": ("attention", "cross_attention", "mlp"),
}


@lru_cache(maxsize=1024)
def pattern_kinds(pattern: str) -> tuple[LayerKind, ...]:
    """The kind of each layer of a pattern: a word for each, a letter for each of its blocks."""
    return tuple("+".join(LETTERS[letter] for letter in word) for word in pattern.split())


def blocks(kind: LayerKind) -> tuple[Block, ...]:
    """Of a layer of this kind, in the order in which a token goes through them."""
    return USUAL[kind] if kind in USUAL else tuple(kind.split("+"))  # type: ignore[arg-type]


def said_of(block: Block, table: Mapping[Block, T], what: str) -> T:
    """A block's entry in one of the tables of what blocks have. Raises InputError where it has none."""
    if block not in table:
        fix = f"one of {', '.join(table)}, or add it there (CONTRIBUTING, a kind of module)"
        raise InputError(f"nothing says {what} of a block `{block}`", where="a layer of the model", fix=fix)
    return table[block]
