"""One forward or backward pass over some layers of a module on a group of ranks: what compute tasks are priced as."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.plan.expert_layers import is_moe
from planner.plan.model import Layout, Placement, Split
from planner.specs.base import Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Recompute

Mixed = tuple[tuple[Recompute, float], ...]  # kind of recomputation, and how many layers use it
PlacementCounts = tuple[tuple[Placement, Mixed], ...]  # the same for each placement of experts


class Part(NamedTuple):
    """A pass over `layers` layers; `embedding_head`: with all that is outside the layers, which is counted behind the
    last.
    """

    module: str
    layers: int
    ends: bool
    ranks: Ranks
    split: Split
    forward: bool
    again: Mixed = ()
    spread: PlacementCounts = ()  # empty: all layers have the layout's placement of experts


def mixed(layout: Layout, layers: Iterable[int]) -> Mixed:
    """How many of these layers use each kind of recomputation."""
    return tuple(sorted(layout.recomputes(layers).items()))


def spread_over(layout: Layout, module: Module, layers: Sequence[int]) -> PlacementCounts:
    """How many of these layers use each kind of recomputation, by the placement of their experts; empty where all
    layers have the layout's placement.

    Each is priced as the mean of the module's layers: layers without experts are counted with MoE layers, of the same
    recomputation where there are any.
    """
    if not layout.experts:
        return ()
    counts: dict[Placement, dict[Recompute, float]] = {}
    for how, count in mixed(layout, layers):
        own = [layer for layer in layers if layout.recompute_of(layer) == how]
        for candidates in (own, layers, range(module.layers)):
            with_experts = [layer for layer in candidates if is_moe(module, layer)]
            if with_experts:
                break
        for placed, placed_layers in layout.by_experts(with_experts):
            counts.setdefault(placed.placement, {})[how] = count * len(placed_layers) / len(with_experts)
    return tuple((placement, tuple(sorted(kinds.items()))) for placement, kinds in counts.items())


def sent_again(part: Part) -> float:
    """Layers that this pass recomputes in full, attention and all its communication included."""
    return 0.0 if part.forward else dict(part.again).get("full", 0.0)
