"""One forward or backward pass over some layers of a module on a group of ranks: what compute tasks are priced as.

What cross attention reads for the items of a pass is told per token of theirs: all that its cost depends on besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from planner.plan.mesh.rank_mesh import has_experts
from planner.plan.plan_file import ExpertPlacement, Layout, Plan
from planner.plan.tokens.encoder_outputs import ItemKey, fed_tokens
from planner.specs.base import Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Recompute
from planner.specs.sequence_sharding import SequenceSplit

RecomputeCounts = tuple[tuple[Recompute, float], ...]  # kind of recomputation, and how many layers use it
PlacementCounts = tuple[tuple[ExpertPlacement, RecomputeCounts], ...]  # the same for each placement of experts


class CrossReads(NamedTuple):
    """Outputs of other modules that some items read.

    Layers with nothing but cross attention leave the tokens of items that read nothing as they are, and take no time
    for them.
    """

    per_token: float = 0.0  # outputs read, over tokens
    pairs: float = 0.0  # pairs of a token and an output that it attends to, over the sum of items' squared tokens
    readers: float = 1.0  # share of the tokens that are in items which read something


NO_READS = CrossReads()


def reads_of(items: Iterable[tuple[int, int]]) -> CrossReads:
    """What items read that are given as (tokens, outputs read)."""
    sizes = [*items]
    tokens, squares = sum(own for own, _ in sizes), sum(own * own for own, _ in sizes)
    if not tokens:
        return NO_READS
    return CrossReads(
        sum(read for _, read in sizes) / tokens,
        sum(own * read for own, read in sizes) / squares,
        sum(own for own, read in sizes if read) / tokens,
    )


def reads_by_item(plan: Plan) -> dict[ItemKey, int]:
    """Outputs that cross attention reads for each item of each module that has it."""
    named = [name for name in plan.layouts if plan.uses.models[name].cross_attention_width]
    counts = fed_tokens(plan, "cross_attention") if named else {}
    return {(name, item): counts.get((name, item), 0) for name in named for item in plan.uses.items[name]}


def mean_cross_reads(plan: Plan, read: Mapping[ItemKey, int]) -> dict[str, CrossReads]:
    """What all items of the plan read, by module with cross attention; `read`: by item."""
    sizes: dict[str, list[tuple[int, int]]] = {}
    for (module, item), count in read.items():
        sizes.setdefault(module, []).append((plan.uses.tokens(module, item), count))
    return {module: reads_of(of_module) for module, of_module in sizes.items()}


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
