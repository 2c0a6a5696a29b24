"""Modes of encoders beside an LLM: into how many stages they go, and how many micro-batches a pass serves."""

from collections.abc import Iterator, Mapping

from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.assignment import packs_samples

MOST_PASSES = 32  # of an encoder in a step
WHEN = ("serves", "ahead", "backward")  # fields that say when an encoder's passes run


def fixed_times(inputs: Inputs) -> list[str]:
    """The fields by which a job says when passes of encoders run."""
    encoders = [name for name in inputs.model.modules if name != inputs.module]
    return [
        f"{name}.{field}" for name in encoders for field in WHEN if getattr(inputs.fixed_of(name), field) is not None
    ]


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
    """Into how many passes of an encoder the LLM's `count` micro-batches may go: powers of two, of which each replica
    has an item in each, and as many as keep the bubble of an encoder's own pipeline below a fourth.
    """
    if packs_samples(inputs):  # a pass has what its own packs read
        return [count]
    streams = inputs.batches[0].streams
    of_replica = (len(items) // (layouts[name].dp * layouts[name].replica) for name, items in streams.items())
    most = max(1, min(MOST_PASSES, count, *of_replica))
    fewest = max(4 * (layouts[name].pp - 1) for name in streams)
    powers = [1 << power for power in range(most.bit_length())]
    return [passes for passes in powers if passes >= fewest] or powers[-1:]
