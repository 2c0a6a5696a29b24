"""Joint layouts that differ in one field of one module: what the search tries around a good one."""

from collections.abc import Iterator, Mapping
from typing import Any

from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields

Change = dict[str, Any]  # field of a layout → another value
NOTHING = Parallelism()
MOST_AHEAD = 256  # micro-batches


def neighbours(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[dict[str, Layout]]:
    """Joint layouts that differ in one field of one module, which the job leaves open."""
    for name, layout in layouts.items():
        for change in changes_of(layout, name != inputs.module):
            other = changed(inputs, name, layout, change)
            if other != layout:
                yield {**layouts, name: other}


def changes_of(layout: Layout, encoder: bool) -> Iterator[Change]:
    """Fields of a module with other values."""
    if encoder:
        widths = (layout.tp * 2, layout.tp // 2)
        for tp in (tp for tp in widths if tp and layout.tp * layout.dp % tp == 0):
            yield {"tp": tp, "dp": layout.tp * layout.dp // tp}
        yield from ({"ahead": count} for count in (layout.ahead * 2, layout.ahead // 2, 1, 0) if count < MOST_AHEAD)
        yield from (
            {"serves": count} for count in (layout.serves * 2, layout.serves // 2, 1, 4) if 0 < count < MOST_AHEAD
        )
        yield from ({"backward": when} for when in ("last", "at_once"))
        yield from ({"recompute": how} for how in ("none", "selective", "full"))
        yield from ({"zero": stage} for stage in range(4))
        yield {"offload": 0.0}
    else:
        yield from ({"zero": stage} for stage in range(4))
        yield from ({"micro_batch": n} for n in (layout.micro_batch * 2, layout.micro_batch // 2) if n)
        yield from ({"recompute": how} for how in ("none", "selective"))


def changed(inputs: Inputs, name: str, layout: Layout, change: Change) -> Layout:
    """A layout with other values of fields that the job leaves open; itself where they exclude each other."""
    fixed = decided_fields(with_fields(inputs.job.layout, **decided_fields(inputs.job.fix.layouts.get(name, NOTHING))))
    if {*change} & {*fixed}:
        return layout
    try:
        return with_fields(layout, **change)
    except ValueError:
        return layout
