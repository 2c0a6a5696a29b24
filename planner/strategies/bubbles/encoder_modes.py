"""Modes of encoders beside an LLM: into how many stages they go, and how many micro-batches a pass serves."""

from collections.abc import Iterator, Mapping

from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.assignment import packs_samples

MOST_PASSES = 32  # of an encoder in a step


def encoder_modes(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[dict[str, Layout]]:
    """The layouts of the base, then those with encoders in pipelines of as many stages as divide the LLM's: each rank
    has fewer of their layers, and exchanges as much less of their gradients.
    """
    yield {**layouts}
    llm = layouts[inputs.module]
    for stages in (stages for stages in range(2, llm.pp + 1) if llm.pp % stages == 0):
        changed = {name: in_stages(inputs, name, layouts, stages) for name in layouts}
        if changed != layouts:
            yield changed


def in_stages(inputs: Inputs, name: str, layouts: Mapping[str, Layout], stages: int) -> Layout:
    """The layout of an encoder in more stages on the same ranks; as it is where that cannot be, or the job says how
    many.
    """
    layout, module, fixed = layouts[name], inputs.model.modules[name], inputs.fixed_of(name)
    free = not any((fixed.pp, fixed.dp, fixed.vpp, fixed.rank_order, module.unpipelined_reason))
    ranks, able = layout.dp * layout.pp, module.layers >= stages * layout.vpp and layout.pp < stages
    if name == inputs.module or not free or not able or ranks % stages:
        return layout
    order = layouts[inputs.module].rank_order
    even = even_stages(module.layers, stages * layout.vpp)
    return with_fields(layout, pp=stages, dp=ranks // stages, stages=even, rank_order=order)


def numbers_of_passes(inputs: Inputs, layouts: dict[str, Layout], count: int) -> list[int]:
    """Into how many passes of an encoder the LLM's `count` micro-batches may go: evenly, with as many items of each
    replica in each, else in powers of two, none of them without an item; as many as keep the bubble of an encoder's own
    pipeline below a fourth.
    """
    if packs_samples(inputs):  # a pass has what its own packs read
        return [count]
    streams = inputs.batches[0].streams
    of_replica = [len(items) // (layouts[name].dp * layouts[name].replica) for name, items in streams.items()]
    most = max(1, min(MOST_PASSES, count, *of_replica))
    fewest = min(most, max(4 * (layouts[name].pp - 1) for name in streams))
    even = [each for each in range(2, most + 1) if not any(number % each for number in (count, *of_replica))]
    able = [1, *(even or (1 << power for power in range(1, most.bit_length())))]
    return [each for each in able if each >= fewest] or able[-1:]
