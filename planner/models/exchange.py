"""How a rank trades a share of the tokens for a share of the heads, and back (DeepSpeed-Ulysses, arXiv:2309.14509).

The models know only this protocol: attention needs whole documents, everything else works token by token.
"""

from typing import Protocol

from torch import Tensor


class Exchange(Protocol):
    """A sequence-parallel group as a model sees it: T tokens in the group, t on this rank; H heads in all, h here."""

    def span(self, tokens: int) -> tuple[int, int]:
        """The first token of this rank's shard and the one after its last, of `tokens` in the group."""

    def seq_to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[t, H, D] each to [T, h, D] each: every token, some heads."""

    def heads_to_seq(self, out: Tensor) -> Tensor:
        """[T, h, D] to [t, H, D]: the inverse, for the output of attention."""


class Whole:
    """A group of one rank: it has every token and every head."""

    def span(self, tokens: int) -> tuple[int, int]:
        return 0, tokens

    def seq_to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v

    def heads_to_seq(self, out: Tensor) -> Tensor:
        return out


WHOLE = Whole()


def even_sizes(tokens: int, ranks: int, unit: int = 1) -> tuple[int, ...]:
    """Contiguous shards that differ by at most one unit of tokens, the larger first."""
    units, rest = divmod(tokens, unit)
    if rest:
        raise ValueError(f"{tokens} tokens do not divide into units of {unit}")
    each, more = divmod(units, ranks)
    return tuple(unit * (each + (index < more)) for index in range(ranks))
