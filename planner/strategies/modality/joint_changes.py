"""Joint layouts that differ in one field of one module: what the search tries around a good one."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from planner.errors import InputError
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import decided_fields
from planner.strategies.modality.kept_features import ALONE, kept_fields, kept_sources
from planner.strategies.static.static_plan import micro_batch_count

Change = dict[str, Any]  # field of a layout → another value


def neighbours(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[dict[str, Layout]]:
    """Joint layouts that differ in one field of one module, which the job leaves open."""
    count = micro_batch_count(layouts[inputs.module], len(inputs.batches[0].items))
    for name in sorted(layouts, key=lambda name: name != inputs.module):
        layout = layouts[name]
        own = llm_changes(layout, count) if name == inputs.module else encoder_changes(layout, count)
        for change in chain(feature_changes(inputs, name, layout), own):
            other = changed(inputs, name, layout, change)
            if other != layout:
                yield {**layouts, name: other}


def encoder_changes(layout: Layout, count: int) -> Iterator[Change]:
    """Fields of an encoder with other values; `count`: micro-batches of who reads it."""
    for tp in (tp for tp in (layout.tp * 2, layout.tp // 2) if tp and layout.tp * layout.dp % tp == 0):
        yield {"tp": tp, "dp": layout.tp * layout.dp // tp}
    yield {"ahead": count, "serves": 1}
    yield {"ahead": 0, "serves": count}
    yield from ({"serves": each} for each in (layout.serves * 2, layout.serves // 2, 4, 1) if 0 < each <= count)
    if layout.serves < count:  # else its one pass is in front of all of them in any case
        yield from ({"ahead": each} for each in (layout.ahead * 2, layout.ahead // 2, 1, 0) if each <= count)
    yield from ({"backward": when} for when in ("last", "at_once"))
    yield from ({"recompute": how} for how in ("none", "selective", "full"))
    yield from zero_changes(layout)
    yield {"offload": 0.0}


def zero_changes(layout: Layout) -> Iterator[Change]:
    """ZeRO stages, where there is more than one rank to shard over: else all are the same."""
    yield from ({"zero": stage} for stage in range(4) if layout.dp * layout.cp > 1)


def feature_changes(inputs: Inputs, name: str, layout: Layout) -> Iterator[Change]:
    """Features kept elsewhere, or not at all."""
    for source in kept_sources(inputs, name):
        yield kept_fields(inputs, name, layout, source) or {}
    if layout.features != "computed":
        yield {"features": "computed"}


def llm_changes(layout: Layout, count: int) -> Iterator[Change]:
    """Fields of the LLM with other values; `count`: its micro-batches, of which one has all samples."""
    yield from ({"recompute": how} for how in ("none", "selective"))
    yield from zero_changes(layout)
    larger = [layout.micro_batch * 2] if count > 1 else []
    yield from ({"micro_batch": each} for each in (*larger, layout.micro_batch // 2) if each)


def changed(inputs: Inputs, name: str, layout: Layout, change: Change) -> Layout:
    """A layout with other values of fields that the job leaves open; itself where they exclude each other."""
    if layout.features != "computed" and {*change} & {*ALONE} and "features" not in change:
        return layout  # whose ranks each compute whole items
    if {*change} & {*decided_fields(inputs.fixed_of(name))}:
        return layout
    try:
        return with_fields(layout, **change)
    except InputError:
        return layout
