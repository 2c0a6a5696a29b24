"""Which pipeline stages of a module read an encoder's outputs, and how a transfer to one of them is called.

Outputs that stand for tokens come to the first stage, log-probabilities to the last, which has the loss. Those that
cross attention reads come to every stage with a layer of it, directly from the ranks that have them: passed on from
stage to stage they would travel with every micro-batch through stages that do not read them.
"""

from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Layers
from planner.specs.layers import Module
from planner.specs.layers.blocks import kind_blocks
from planner.specs.model import EdgeInput


def layout_stages(module: Module, layout: Layout) -> tuple[Layers, ...]:
    """Return the layers of each stage."""
    return layout.stages or (Layers(range(module.layers)),)


def reading_stages(module: Module, layout: Layout, by: EdgeInput) -> tuple[int, ...]:
    """Return the stages of a module that read what an edge brings."""
    if by == "tokens":
        return (0,)
    if by == "log_probabilities":
        return (len(layout_stages(module, layout)) - 1,)
    return tuple(
        number
        for number, layers in enumerate(layout_stages(module, layout))
        if any("cross_attention" in kind_blocks(module.layer_kind(layer)) for layer in layers)
    )


def transfer_group(group: str, target: str, stage: int) -> str:
    """Return the group of a transfer from a group's ranks to a module's stage: `v0>llm`, or `v0>llm>3` to stage 3."""
    return f"{group}>{target}" if not stage else f"{group}>{target}>{stage}"


def reader_of(transfer: Task) -> tuple[str, int]:
    """Return the module, and its stage, that reads what a transfer brings. Of any other task, no module."""
    _, *reader = transfer.group.split(">")
    return (reader[0] if reader else "", int(reader[1]) if len(reader) > 1 else 0)
