"""Baselines with simple layouts: every module on cards of its own with equal dp, or every module sharded over all."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.errors import Infeasible
from planner.layouts import RECOMPUTE, SEARCHED_FIELDS, layout_of, layout_problem
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.strategies.modality.baseline_trial import Layouts, with_open_fields
from planner.strategies.modality.equal_dp_apart import ModuleApart, equal_dp_layouts
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.level_stages import batch_pricing, passes_seconds
from planner.strategies.modality.module_space import IN_PARTS, MEMORY_SHARES, encoder_space, samples_space


def equal_dp_apart(space: JointSpace) -> Iterator[Layouts]:
    """All modules apart with equal dp, tp 1 and cp 1, as MindSpeed's multimodal search has them, encoders first."""
    inputs = space.inputs
    samples = len(inputs.batches[0].items)
    modules = {name: module_apart(inputs, name, samples) for name in in_order(space)}
    found = equal_dp_layouts([*modules.values()], space.size, samples, every=True)
    if not found:
        raise Infeasible("no equal dp gives every rank a layer of a module", where="cluster")
    for each in found:
        layouts, first = dict[str, Layout](), 0
        for name, cards in zip(modules, each.cards, strict=True):
            ranks = Ranks(range(first, first + each.dp * cards))
            layouts |= {name: layout} if (layout := layout_apart(inputs, name, ranks, cards)) else {}
            first += len(ranks)
        if len(layouts) == len(modules):
            yield {name: layouts[name] for name in inputs.model.modules}
    raise Infeasible("with equal dp, tp 1 and cp 1 some module fits on no number of cards", where="memory")


def layout_apart(inputs: Inputs, name: str, ranks: Ranks, cards: int) -> Layout | None:
    """The quickest layout of a module on these ranks with so many cards a replica; None where none fits."""
    one, count = with_open_fields(inputs, name, tp=1, cp=1, pp=cards), len(ranks)
    of_samples = name == inputs.module
    space = samples_space(one, count) if of_samples else encoder_space(one, name, count, True, IN_PARTS)
    space = space if of_samples else space.without_zero3
    placed = {"ranks": ranks} if of_samples else {"ranks": ranks, "micro_batch": 1, "schedule": None}
    return next((with_fields(each.layout, **placed) for each in space.quickest(1)), None)


def in_order(space: JointSpace) -> list[str]:
    """The modules, the LLM last."""
    return [*space.encoders, space.inputs.module]


def module_apart(inputs: Inputs, name: str, samples: int) -> ModuleApart:
    """One module: seconds of the mean sample on a card, and its layers."""
    batch, layers = inputs.batches[0], inputs.model.modules[name].layers
    sizes = batch.items if name == inputs.module else batch.streams[name]
    layout = plain_layout(inputs, name, Ranks((0,)))
    seconds = passes_seconds(batch_pricing(inputs, {name: layout}), name, Layers(range(layers)), sizes, samples)
    return ModuleApart(seconds / samples, layers)


def fsdp_all(space: JointSpace) -> Iterator[Layouts]:
    """All modules under ZeRO-3 over all ranks, without tp and pp: of the LLM the quickest cp, micro-batch and
    recomputation beside encoders that have a small or a large share of memory. Raises Infeasible.
    """
    inputs, ranks = space.inputs, space.most_ranks(space.inputs.module)
    llms = space.llm(len(ranks)).with_values(tp=1, pp=1, vpp=1, zero=3, replica=1)
    encoders = {name: plain_layout(inputs, name, Ranks(range(space.size)), zero=3) for name in space.encoders}
    tried: list[Layout] = []
    for share in reversed(MEMORY_SHARES):
        for llm in llms.quickest(1, beside=share * space.allowed):
            if llm.layout not in tried:
                tried.append(llm.layout)
                layouts = {**encoders, inputs.module: with_fields(llm.layout, ranks=ranks)}
                yield {name: layouts[name] for name in inputs.model.modules}
    if not tried:
        raise Infeasible("the LLM does not fit under ZeRO-3 over all ranks", where="memory")


def plain_layout(inputs: Inputs, name: str, ranks: Ranks, **numbers: int) -> Layout:
    """A module's layout on these ranks with these degrees, others 1, and what the job fixes beside them."""
    trained = replace(layout_problem(replace(inputs, module=name)).trained, ranks=len(ranks))
    how = trained.fixed.recompute
    recompute = how if how in RECOMPUTE else "none"
    usual = {**dict.fromkeys(SEARCHED_FIELDS, 1), "zero": 0, "recompute": RECOMPUTE.index(recompute)}
    placed: dict[str, Any] = {"ranks": ranks}
    if name != inputs.module:
        placed |= {"schedule": None}
    return with_fields(layout_of(trained, {**usual, **numbers}), **placed)
