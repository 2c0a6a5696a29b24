"""Layers of pipeline stages of which the first also computes encoders, so that the slowest takes least."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from planner.costs import Pricing
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.workload.items import Size, item_tokens, part_lengths
from planner.strategies.assignment.module_items import micro_batch_count
from planner.strategies.plan_drafts import plan_uses, pricing_of_draft

PASSES: tuple[Phase, ...] = ("F", "B")


def level_counts(layers: int, seconds: float, beside: Sequence[float]) -> tuple[int, ...]:
    """Layers of each stage, one at least, with the least max over stages of beside_s + seconds · layers_s: each
    layer goes to the stage that has least with it, of equals to the last, which keeps fewest micro-batches.
    """
    counts = [1] * len(beside)
    for _ in range(layers - len(beside)):
        chosen = min(range(len(beside)), key=lambda stage: (beside[stage] + seconds * (counts[stage] + 1), -stage))
        counts[chosen] += 1
    return tuple(counts)


def chunks_of_counts(counts: Sequence[int], vpp: int) -> tuple[Layers, ...]:
    """The layers of each chunk, where ranks of a pipeline have so many layers: of a rank, as even as they can be."""
    each = [count // vpp + (chunk < count % vpp) for chunk in range(vpp) for count in counts]
    return tuple(Layers(range(first, last)) for first, last in pairwise(accumulate(each, initial=0)))


def with_level_stages(inputs: Inputs, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """The layouts with layers of the module of the samples moved between its stages for the first batch, so that the
    first stage, with the encoders on its ranks, is level with the others; in as many chunks as each then has layers, at
    most as before.
    """
    llm = layouts[inputs.module]
    if llm.pp == 1:
        return {**layouts}
    pricing = batch_pricing(inputs, layouts)
    layers, samples = pricing.models[inputs.module].layers, inputs.batches[0].items
    passes = micro_batch_count(llm, len(samples))
    inner, head = layer_seconds(pricing, inputs.module, samples, passes)
    first, beside = {*stage_ranks(llm, 0)}, [0.0] * llm.pp
    beside[-1] += head
    for name, sizes in inputs.batches[0].streams.items():
        if {*layouts[name].ranks} <= first:
            beside[0] += passes_seconds(pricing, name, Layers(range(pricing.models[name].layers)), sizes, passes)
    counts = level_counts(layers, inner, beside)
    return {**layouts, inputs.module: with_chunks(llm, chunks_of_counts(counts, min(llm.vpp, *counts)))}


def with_chunks(llm: Layout, chunks: tuple[Layers, ...]) -> Layout:
    """The layout with these layers in its stages' chunks."""
    vpp = len(chunks) // llm.pp
    schedule = "interleaved" if vpp > 1 else "1f1b" if llm.vpp > 1 else llm.schedule
    return with_fields(llm, vpp=vpp, stages=chunks, schedule=schedule)


def layer_seconds(pricing: Pricing, name: str, sizes: Mapping[int, Size], passes: int) -> tuple[float, float]:
    """Seconds of `passes_seconds` through one layer of a module, and what its last one takes beside: head or
    projector.
    """
    layers = pricing.models[name].layers
    before = passes_seconds(pricing, name, Layers(range(layers - 1)), sizes, passes) if layers > 1 else 0.0
    inner = before / max(1, layers - 1)
    return inner, passes_seconds(pricing, name, Layers((layers - 1,)), sizes, passes) - inner


def batch_pricing(inputs: Inputs, layouts: Mapping[str, Layout]) -> Pricing:
    """The prices of plans of these layouts."""
    return pricing_of_draft(inputs, plan_uses(inputs, {**layouts}, ()), {**layouts})


def passes_seconds(pricing: Pricing, name: str, layers: Layers, sizes: Mapping[int, Size], passes: int) -> float:
    """Seconds of so many passes there and back through some layers, which have all items of a batch, on one of a
    module's replicas, of which all have an equal share.
    """
    layout = pricing.layouts[name]
    ranks, replicas = Ranks(stage_ranks(layout, 0)[: layout.tp * layout.cp]), layout.dp * layout.replica
    rising = sorted(sizes.values(), key=item_tokens)
    packs = [pack for first in range(replicas * passes) if (pack := rising[first :: replicas * passes])]
    trained = name not in pricing.flows or pricing.flows[name].has_backward()
    phases = PASSES if trained else PASSES[:1]
    return (
        sum(
            pricing.price(pass_of(name, layers, phase, ranks, pack, layout)).value for phase in phases for pack in packs
        )
        / replicas
    )


def pass_of(name: str, layers: Layers, phase: Phase, ranks: Ranks, pack: Sequence[Size], layout: Layout) -> Task:
    """One pass of packed items."""
    return Task(
        module=name,
        layers=layers,
        phase=phase,
        micro_batch=0,
        group=f"{name}.dp0",
        ranks=ranks,
        sizes=tuple(map(item_tokens, pack)),
        degree=layout.cp,
        ring=layout.default_split.ring,
        parts=tuple(map(part_lengths, pack)),
    )
