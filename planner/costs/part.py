"""One pass over some layers of a module on a group: what tasks of forwards and backwards are priced as."""

from collections.abc import Iterable
from typing import NamedTuple

from planner.plan.model import Layout, Split
from planner.specs.base import Ranks
from planner.specs.parallelism import Recompute

Mixed = tuple[tuple[Recompute, int], ...]  # how many layers make what again


class Part(NamedTuple):
    """Layers are counted; `ends`: with what stands behind the last."""

    module: str
    layers: int
    ends: bool
    ranks: Ranks
    split: Split
    forward: bool
    again: Mixed = ()


def mixed(layout: Layout, layers: Iterable[int]) -> Mixed:
    """What some layers of a module make again."""
    return tuple(sorted(layout.recomputes(layers).items()))


def sent_again(part: Part) -> int:
    """Layers whose forward is made again in this pass, attention with all that its ranks send each other."""
    return 0 if part.forward else dict(part.again).get("full", 0)
