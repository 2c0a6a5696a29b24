"""How the ranks of a group share out sequences: heads within sub-groups of consecutive ranks, tokens around rings.

Both together are unified sequence parallelism (arXiv 2405.07719): sub-groups of u ranks, r of them, deal the documents
to each other in zig-zag; within a sub-group each rank has an even share of the rows that were dealt to it, gives away
its tokens' heads for its heads' tokens (Ulysses), and passes keys and values of these heads to the rank in its place in
the next sub-group.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.ring import Ring
from planner.launch.ulysses import Ulysses
from planner.models.exchange import WHOLE, Exchange
from planner.models.pieces import Masking
from planner.plan.model import Split
from planner.specs.dealing import Span, dealt, even_sizes, rows, zigzag


class Sharing(NamedTuple):
    """A micro-batch and who shares it."""

    ranks: Sequence[int]  # rising
    split: Split
    lengths: Sequence[int]  # tokens of each document
    unit: int = 1  # tokens that stay together

    def check(self) -> None:
        if self.split.ulysses * self.split.ring != len(self.ranks):
            raise ValueError(f"{len(self.ranks)} ranks are not {self.split.ring} sub-groups of {self.split.ulysses}")


class Dealt:
    """The `Exchange` of one rank of several sub-groups: `spans` are its own tokens; `within` knows whose others are.

    (No dataclass: FSDP2 copies dataclasses that it finds among the arguments of a module.)
    """

    def __init__(self, spans: Sequence[Span], tokens: int, within: Ulysses | Ring) -> None:
        self.spans, self.tokens, self.within = list(spans), tokens, within

    def held(self, lengths: Sequence[int]) -> list[Span]:
        if sum(lengths) != self.tokens:
            raise ValueError(f"the shards hold {self.tokens} tokens, the documents {sum(lengths)}")
        return self.spans

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        return self.within.attend(q, k, v, cu_seqlens, masking, sinks)


def exchange_over(groups: Groups, sharing: Sharing, meter: Meter) -> Exchange:
    """Raises ValueError where ranks and split do not fit each other, or lengths are not whole units."""
    sharing.check()
    ranks, split, lengths, unit = sharing
    if len(ranks) == 1:
        return WHOLE
    if split.ring == 1:
        return Ulysses(groups[ranks], even_sizes(sum(lengths), split.ulysses, unit), meter)
    place = ranks.index(groups.rank)
    block, within = divmod(place, split.ulysses)
    of_blocks = zigzag(lengths, split.ring, unit)
    attention: Ring | Ulysses = Ring(groups[split.rings(ranks)[within]], of_blocks, meter)
    if split.ulysses > 1:
        sizes = even_sizes(rows(of_blocks[block]), split.ulysses, unit)
        attention = Ulysses(groups[split.blocks(ranks)[block]], sizes, meter, attention.attend)
    return Dealt(dealt(lengths, split, place, unit), sum(lengths), attention)
