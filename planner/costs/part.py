"""One pass over some layers of a module on a group: what tasks of forwards and backwards are priced as."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.plan.expert_layers import is_moe
from planner.plan.model import Layout, Placement, Split
from planner.specs.base import Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Recompute

Mixed = tuple[tuple[Recompute, float], ...]  # how many layers make what again
Spread = tuple[tuple[Placement, Mixed], ...]  # and of them, by how experts lie


class Part(NamedTuple):
    """Layers are counted; `ends`: with what stands behind the last."""

    module: str
    layers: int
    ends: bool
    ranks: Ranks
    split: Split
    forward: bool
    again: Mixed = ()
    spread: Spread = ()  # empty: experts lie as the layout has it for all layers


def mixed(layout: Layout, layers: Iterable[int]) -> Mixed:
    """What some layers of a module make again."""
    return tuple(sorted(layout.recomputes(layers).items()))


def spread_over(layout: Layout, module: Module, layers: Sequence[int]) -> Spread:
    """How many of these layers make what again, by how experts lie. Each is priced as the mean of the module's: layers
    without experts count as those with some do, of the same recomputation if there are any.
    """
    if not layout.experts:
        return ()
    found: dict[Placement, dict[Recompute, float]] = {}
    for how, count in mixed(layout, layers):
        own = [layer for layer in layers if layout.recompute_of(layer) == how]
        for some in (own, layers, range(module.layers)):
            with_experts = [layer for layer in some if is_moe(module, layer)]
            if with_experts:
                break
        for at, those in layout.by_experts(with_experts):
            found.setdefault(at.placement, {})[how] = count * len(those) / len(with_experts)
    return tuple((placement, tuple(sorted(counts.items()))) for placement, counts in found.items())


def sent_again(part: Part) -> float:
    """Layers whose forward is made again in this pass, attention with all that its ranks send each other."""
    return 0.0 if part.forward else dict(part.again).get("full", 0.0)
