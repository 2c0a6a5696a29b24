"""One forward or backward pass over some layers of a module on a group of ranks: what compute tasks are priced as."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from planner.costs.cross_reads import NO_READS, CrossReads
from planner.plan.mesh.rank_mesh import has_experts
from planner.plan.plan_file import ExpertPlacement, Layout
from planner.specs.base import Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Recompute
from planner.specs.sequence_sharding import SequenceSplit

RecomputeCounts = tuple[tuple[Recompute, float], ...]  # kind of recomputation, and how many layers use it
PlacementCounts = tuple[tuple[ExpertPlacement, RecomputeCounts], ...]  # the same for each placement of experts


class LayerPass(NamedTuple):
    """A pass over `layers` layers; `embedding_head`: with all that is outside the layers, which is counted behind the
    last; `kept`: a forward keeps activations, as a backward follows.
    """

    module: str
    layers: int
    embedding_head: bool
    ranks: Ranks
    split: SequenceSplit
    forward: bool
    recompute: RecomputeCounts = ()
    by_placement: PlacementCounts = ()  # empty: all layers have the layout's placement of experts
    reads: CrossReads = NO_READS  # of cross attention
    kept: bool = True


def recompute_counts(layout: Layout, layers: Iterable[int]) -> RecomputeCounts:
    """How many of these layers use each kind of recomputation."""
    return in_order(layout.recompute_counts(layers))


def in_order(counts: Mapping[Recompute, float]) -> RecomputeCounts:
    """The counts by kind of recomputation, in an order that does not depend on the layers'."""
    return tuple(sorted(counts.items(), key=lambda each: str(each[0])))


def counts_by_placement(layout: Layout, module: Module, layers: Sequence[int]) -> PlacementCounts:
    """How many of these layers use each kind of recomputation, by the placement of their experts; empty where all
    layers have the layout's placement.

    Each is priced as the mean of the module's layers: layers without experts are counted with MoE layers, of the same
    recomputation where there are any.
    """
    if not layout.experts:
        return ()
    counts: dict[ExpertPlacement, dict[Recompute, float]] = {}
    for how, count in recompute_counts(layout, layers):
        own = [layer for layer in layers if layout.layer_recompute(layer) == how]
        for candidates in (own, layers, range(module.layers)):
            with_experts = [layer for layer in candidates if has_experts(module, layer)]
            if with_experts:
                break
        for placed, placed_layers in layout.by_expert_placement(with_experts):
            counts.setdefault(placed.expert_placement, {})[how] = count * len(placed_layers) / len(with_experts)
    return tuple((placement, in_order(kinds)) for placement, kinds in counts.items())


def fully_recomputed_layers(part: LayerPass) -> float:
    """Layers that this pass recomputes in full, attention and all its communication included."""
    return 0.0 if part.forward else dict(part.recompute).get("full", 0.0)
