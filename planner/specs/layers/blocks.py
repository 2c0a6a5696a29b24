"""The blocks of layers, each with a norm and a residual connection."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeVar

from planner.errors import InputError

T = TypeVar("T")

Block = Literal[
    "attention", "mlp", "experts", "state_space", "linear_attention", "cross_attention",
    "matrices", "attending_matrices",
]  # fmt: skip
PATTERN_LETTERS: dict[str, Block] = {
    "M": "state_space",
    "L": "linear_attention",
    "*": "attention",
    "-": "mlp",
    "E": "experts",
    "X": "cross_attention",
}  # letters of a pattern
# A key of NAMED_KINDS, or the blocks of any other kind: `attention+mlp`; behind an @ the name of a described layer.
LayerKind = str
NAMED_KINDS: dict[LayerKind, tuple[Block, ...]] = {
    "dense": ("attention", "mlp"),
    "moe": ("attention", "experts"),
    "encoder": ("attention", "mlp"),
    "gated_encoder": ("attention", "mlp"),  # the output of each block by the tanh of a learned number
    "cross": ("attention", "cross_attention", "mlp"),
}


@lru_cache(maxsize=1024)
def pattern_kinds(pattern: str) -> tuple[LayerKind, ...]:
    """Return the kind of each layer of a pattern, which has a word for each layer, and a letter for each block."""
    return tuple("+".join(PATTERN_LETTERS[letter] for letter in word) for word in pattern.split())


def kind_blocks(kind: LayerKind) -> tuple[Block, ...]:
    """Return the blocks of a layer of this kind, in the order in which they are applied."""
    return NAMED_KINDS[kind] if kind in NAMED_KINDS else tuple(kind.partition("@")[0].split("+"))  # type: ignore[arg-type]


def attends(kind: LayerKind) -> bool:
    """Whether tokens of a layer of this kind attend to others of their own module."""
    return bool({"attention", "attending_matrices"} & {*kind_blocks(kind)})


def only_reads(kind: LayerKind) -> bool:
    """Whether a layer of this kind brings tokens together with another module's outputs alone: tokens of an item that
    reads none pass it unchanged, and cost nothing there (Llama 3, arXiv 2407.21783, section 7).
    """
    blocks = kind_blocks(kind)
    return "cross_attention" in blocks and not {"attention", "state_space", "linear_attention"} & {*blocks}


def block_entry(block: Block, table: Mapping[Block, T], what: str) -> T:
    """Return a block's entry in a table; `what` names the table in errors. Raises InputError if there is none."""
    if block not in table:
        fix = f"one of {', '.join(table)}, or add it there (CONTRIBUTING, a kind of module)"
        raise InputError(f"nothing says {what} of a block `{block}`", where="a layer of the model", fix=fix)
    return table[block]
