"""Joint layouts that differ in a field or two of one module: what the search tries around a good one.

What modules recompute and offload is no field of these: it follows from all others (cheapest_room.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import ceil, gcd
from typing import Any

from planner.errors import InputError
from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.layers import Module
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import decided_fields
from planner.strategies.assignment import micro_batch_count
from planner.strategies.modality.kept_features import ALONE, kept_fields, kept_sources
from planner.strategies.modality.level_stages import with_level_stages

Change = dict[str, Any]  # field of a layout → another value


def neighbours(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[dict[str, Layout]]:
    """Joint layouts that differ in a field or two of one module, which the job leaves open: those with another mesh of
    the LLM last, as candidates have others already (joint_candidates.py).
    """
    llm, samples = layouts[inputs.module], len(inputs.batches[0].items)
    every: dict[str, Iterable[Change]] = {inputs.module: llm_changes(inputs, llm, samples)}
    for name in (name for name in layouts if name != inputs.module):
        own = zero_changes(layouts[name]), mesh_changes(inputs.model.modules[name], layouts[name])
        every[name] = chain(feature_changes(inputs, name, layouts[name]), *own)
    last = (inputs.module, mesh_changes(inputs.spec, llm))
    for name, changes in (*every.items(), last):
        others = (changed(inputs, name, layouts[name], change) for change in changes)
        yield from ({**layouts, name: other} for other in others if other != layouts[name])
    fixed = inputs.fixed_of(inputs.module)
    if inputs.software.knobs.uneven_stages and fixed.stages is None:
        level = with_level_stages(inputs, layouts)
        if level != layouts and fixed.vpp in (None, level[inputs.module].vpp):
            yield level


def mesh_changes(module: Module, layout: Layout) -> Iterator[Change]:
    """Twice and half as many ranks of tp and of cp, from or to those of dp, and from one to the other; cp shards heads
    as far as these go.
    """
    for tp, cp in ((2.0, 1.0), (0.5, 1.0), (1.0, 2.0), (1.0, 0.5), (2.0, 0.5), (0.5, 2.0)):
        found = {"tp": layout.tp * tp, "cp": layout.cp * cp, "dp": layout.dp / (tp * cp)}
        if all(each == int(each) for each in found.values()):
            degrees = {name: int(each) for name, each in found.items()}
            heads = max(1, kv_heads(module) // degrees["tp"])
            overlap = tuple(kind for kind in layout.overlap if kind != "tp" or degrees["tp"] > 1)
            yield {**degrees, "ulysses": gcd(degrees["cp"], heads), "overlap": overlap}


def zero_changes(layout: Layout) -> Iterator[Change]:
    """ZeRO stages, where there is more than one rank to shard over: else all are the same."""
    yield from ({"zero": stage} for stage in range(4) if layout.dp * layout.cp > 1)


def feature_changes(inputs: Inputs, name: str, layout: Layout) -> Iterator[Change]:
    """Features kept elsewhere, or not at all."""
    for source in kept_sources(inputs, name):
        yield kept_fields(inputs, name, layout, source) or {}
    if layout.features != "computed":
        yield {"features": "computed"}


def llm_changes(inputs: Inputs, layout: Layout, samples: int) -> Iterator[Change]:
    """Fields of the LLM with other values: twice, half as many, one more or one fewer micro-batches, or more room in
    as many; of which one has all samples.
    """
    yield from zero_changes(layout)
    count, group = micro_batch_count(layout, samples), layout.pp if layout.vpp > 1 else 1
    each = ceil(samples / (layout.dp * layout.replica))
    for other in (count * 2, ceil(count / 2), count + group, count - group):
        if 0 < other <= each + group:
            yield {"micro_batch": ceil(each / other)}
    yield {"micro_batch": layout.micro_batch + 1}
    for vpp in (layout.vpp * 2, layout.vpp // 2) if layout.schedule == "interleaved" else ():
        if vpp > 1 and layout.pp * vpp <= inputs.spec.layers:
            yield {"vpp": vpp, "stages": even_stages(inputs.spec.layers, layout.pp * vpp)}


def changed(inputs: Inputs, name: str, layout: Layout, change: Change) -> Layout:
    """A layout with other values of fields that the job leaves open; itself where they exclude each other."""
    if layout.features != "computed" and {*change} & {*ALONE} and "features" not in change:
        return layout  # whose ranks each compute whole items
    fixed = decided_fields(inputs.fixed_of(name))
    if any(field in fixed and getattr(layout, field) != value for field, value in change.items()):
        return layout
    try:
        return with_fields(layout, **change)
    except InputError:
        return layout
