"""Is this way to spread a module possible? Degrees multiply up to its ranks, stages cover the layers, what is said of
experts, of gradients and of recomputation is said of what there is, and what was fixed is kept.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

from planner.plan.expert_layers import expert_layouts, is_moe
from planner.plan.meets import reduces
from planner.plan.mesh import stage_size
from planner.plan.model import Layout, Plan
from planner.plan.names import Violation
from planner.plan.schedules import CHUNKED, ONE_BY_ONE
from planner.specs.base import Layers, changed
from planner.specs.layers import Module
from planner.specs.parallelism import DIMS, RANK_ORDER, Parallelism, said


def layout_laws(plan: Plan) -> Iterator[Violation]:
    """Degrees multiply up to the ranks; stages cut the layers into consecutive ranges; what was fixed is as fixed."""
    feeding = {edge.source for edge in plan.edges}
    for name, layout in plan.layouts.items():
        where = f"layouts.{name}"
        if any(rank >= plan.size for rank in layout.ranks):
            yield Violation(where, f"rank {layout.ranks[-1]} does not exist, there are {plan.size}", "use lower ranks")
        for dim in DIMS:
            if dim not in layout.mesh and getattr(layout, dim) > 1:
                message = f"{layout.rank_order} does not say where {dim} is, and {dim} is {getattr(layout, dim)}"
                yield Violation(f"{where}.rank_order", message, f"name it, as in {RANK_ORDER}")
        sizes = {dim: getattr(layout, dim) for dim in DIMS}
        if prod(sizes.values()) != len(layout.ranks):
            product = " · ".join(f"{dim} {size}" for dim, size in sizes.items() if size > 1) or "dp 1"
            message = f"{product} makes {prod(sizes.values())} ranks, and the layout has {len(layout.ranks)}"
            yield Violation(where, message, "degrees that multiply up to its ranks")
        if name in plan.uses.models:
            yield from module_laws(plan, name, layout, where)
        if layout.schedule and name in feeding:
            message = f"the schedule of `{name}` is never asked for: its passes lie in the order of what it feeds"
            yield Violation(f"{where}.schedule", message, "leave `schedule` out, or use placements")


def module_laws(plan: Plan, name: str, layout: Layout, where: str) -> Iterator[Violation]:
    """What is said of a module is said of what it has."""
    module = plan.uses.models[name]
    broken = [*range_laws(layout.experts, module, f"{where}.experts")]
    if broken:  # what follows asks how experts of each layer lie
        yield from broken
        return
    for laws in (stage_laws, split_of_module_laws, whole_laws, expert_laws, exchange_laws, recompute_laws):
        yield from laws(layout, module, where)
    yield from fixed_laws(plan, name, layout)


def split_of_module_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Heads are shared out over tp, experts over ranks of a stage."""
    tp = layout.tp
    if module.heads % tp:
        yield Violation(where, f"{module.heads} heads do not spread over tp = {tp}", "a tp that divides the heads")
    yield from mesh_laws(layout, module, where)


def mesh_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Experts are shared out over a mesh of their own, which divides a stage's ranks."""
    moe, ep, etp = module.routed, layout.ep, layout.etp
    if moe is None and ep * etp > 1:
        yield Violation(where, "the module has no experts to spread", "leave ep and etp out")
    elif moe and (moe.experts % ep or moe.ffn % etp):
        message = f"{moe.experts} experts of width {moe.ffn} do not spread over ep = {ep}, etp = {etp}"
        yield Violation(where, message, "an ep that divides the experts, an etp that divides their width")
    if stage_size(layout) % (ep * etp):
        message = f"a stage has {stage_size(layout)} ranks, the experts' mesh holds {ep * etp}"
        yield Violation(where, message, "let ep x etp divide them")


def whole_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Some modules want whole documents, or all layers, on a rank; state spaces share out groups of heads over tp."""
    space = module.recurrent
    if module.unparted and layout.cp > 1:
        yield Violation(f"{where}.cp", f"{module.unparted}, and cp = {layout.cp} parts them", "cp: 1")
    if module.unstaged and layout.pp > 1:
        yield Violation(f"{where}.pp", f"{module.unstaged}, and pp = {layout.pp}", "pp: 1")
    if space and space.groups % layout.tp:
        message = f"{space.groups} groups of state spaces do not spread over tp = {layout.tp}"
        yield Violation(f"{where}.tp", message, "a tp that divides the groups")


def stage_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """vpp chunks of layers for each of pp ranks; of one rank a single one."""
    needed = layout.pp * layout.vpp
    if len(layout.stages) != needed and (layout.stages or needed > 1):
        chunks = f" and vpp = {layout.vpp}" if layout.vpp > 1 else ""
        fix = f"name {needed} ranges of layers, or change pp or vpp" if needed > 1 else "name no stages"
        yield Violation(where, f"{len(layout.stages)} stages for pp = {layout.pp}{chunks}", fix)
    elif layout.stages and [i for stage in layout.stages for i in stage] != list(range(module.layers)):
        yield Violation(
            where, f"the stages do not cover layers 0-{module.layers - 1} in order", "cover each layer once"
        )


def exchange_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """What is said of an exchange is said of one that there is."""
    if layout.dispatch != "all_to_all" and module.routed is None:
        message = f"dispatch {layout.dispatch} says how tokens come to experts, and the module has none"
        yield Violation(where, message, "leave `dispatch` out")
    if layout.gradients != "float32" and not reduces(layout, module):
        message = f"gradients are sent in {layout.gradients}, and every rank has parameters of its own"
        yield Violation(where, message, "leave `gradients` out, or add replicas")


def recompute_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Ranges are of layers that there are, each named once."""
    if isinstance(layout.recompute, dict):
        yield from range_laws(layout.recompute, module, f"{where}.recompute")


def expert_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Ranges are of layers that have experts, which can lie so."""
    for named in layout.experts:
        layers, place = Layers.from_file(named), f"{where}.experts.{named}"
        if any(is_moe(module, layer) for layer in layers):
            yield from mesh_laws(layout.at(layers[0]), module, place)
        else:
            yield Violation(place, f"layers {layers} have no experts", "name layers that have some, or leave it out")


def range_laws(named: Iterable[str | int], module: Module, where: str) -> Iterator[Violation]:
    """Of ranges of layers."""
    try:
        counts = Counter(layer for layers in named for layer in Layers.from_file(layers))
    except ValueError as error:  # it says `what is wrong | what to do`
        message, _, fix = str(error).rpartition(" | ")
        yield Violation(where, message, fix)
        return
    beyond = [layer for layer in counts if layer >= module.layers]
    if beyond:
        message = f"layer {min(beyond)} does not exist, there are {module.layers}"
        yield Violation(where, message, f"name layers of 0-{module.layers - 1}")
    twice = [layer for layer, count in counts.items() if count > 1]
    if twice:
        message = f"layer {min(twice)} is in {counts[min(twice)]} of the ranges"
        yield Violation(where, message, "let no ranges overlap")


def fixed_laws(plan: Plan, name: str, layout: Layout) -> Iterator[Violation]:
    """What was fixed before solving is what the plan has."""
    module, fixed = plan.uses.models[name], plan.uses.fix.layouts.get(name, Parallelism())
    for field, value in said(fixed).items():
        has = [getattr(at, field) for at in ways(layout, module)]
        wrong = [own for own in has if meaning(layout, field, value, module) != meaning(layout, field, own, module)]
        if field == "schedule":
            yield from fixed_schedule_laws(plan, name, str(value))
        elif wrong:
            message = f"{field} is fixed to {text(value)}, and the layout has {text(wrong[0])}"
            fix = f"{field}: {text(value)}, or another one in uses.fix.layouts.{name}"
            yield Violation(f"layouts.{name}.{field}", message, fix)


def ways(layout: Layout, module: Module) -> list[Layout]:
    """The layout; or where experts of some layers lie otherwise, each way in which they do."""
    return (expert_layouts(layout, module) if layout.experts else []) or [layout]


def fixed_schedule_laws(plan: Plan, name: str, fixed: str) -> Iterator[Violation]:
    """Of each step, whose order may be another than the layout's."""
    usual, fix = CHUNKED if plan.layouts[name].vpp > 1 else ONE_BY_ONE, f"{fixed}, or another uses.fix.layouts.{name}"
    for number, step in enumerate(plan.steps):
        order = plan.order_of(step, name) or usual
        if order != fixed:
            where = f"steps[{number}].order.{name}" if name in step.order else f"layouts.{name}.schedule"
            has = order if isinstance(order, str) else "another, slot by slot"
            yield Violation(where, f"the schedule is fixed to {fixed}, and the plan has {has}", fix)


def meaning(layout: Layout, field: str, value: object, module: Module) -> object:
    """What a field says of this layout, where the same can be said in several ways."""
    if field == "rank_order":
        return [dim for dim in str(value).split("-") if getattr(layout, dim) > 1]
    if field == "recompute":
        return [changed(layout, recompute=value).recompute_of(layer) for layer in range(module.layers)]
    return value


def text(value: object) -> str:
    """As a plan file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {each}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, tuple) else str(value)
