"""Laws of layouts: degrees multiply up to the ranks, stages cover the layers, options of experts, gradients and
recomputation apply to the module, and what the job fixed is kept.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

from planner.plan.legal.feature_laws import feature_laws
from planner.plan.legal.violation import Violation
from planner.plan.mesh.rank_mesh import expert_layouts, has_experts, stage_ranks, stage_size
from planner.plan.mesh.synchronisation import reduces_gradients
from planner.plan.plan_file import Layout, Plan
from planner.plan.schedules import default_schedule
from planner.specs.base import FirstStage, Layers, Ranks, with_fields
from planner.specs.layers import Module, module_parts
from planner.specs.parallelism import DEFAULT_RANK_ORDER, MESH_DIMS, Parallelism, broken_partition, decided_fields


def layout_laws(plan: Plan) -> Iterator[Violation]:
    """Ranks exist, `rank_order` names all dims in use, degrees multiply up to the ranks, each module's laws hold."""
    feeding = {edge.source for edge in plan.edges}
    for name, layout in plan.layouts.items():
        where = f"layouts.{name}"
        if any(rank >= plan.size for rank in layout.ranks):
            yield Violation(where, f"rank {layout.ranks[-1]} does not exist, there are {plan.size}", "use lower ranks")
        for dim in MESH_DIMS:
            if dim not in layout.mesh and getattr(layout, dim) > 1:
                message = f"{layout.rank_order} does not say where {dim} is, and {dim} is {getattr(layout, dim)}"
                yield Violation(f"{where}.rank_order", message, f"name it, as in {DEFAULT_RANK_ORDER}")
        sizes = {dim: getattr(layout, dim) for dim in MESH_DIMS}
        if prod(sizes.values()) != len(layout.ranks):
            product = " · ".join(f"{dim} {size}" for dim, size in sizes.items() if size > 1) or "dp 1"
            message = f"{product} makes {prod(sizes.values())} ranks, and the layout has {len(layout.ranks)}"
            yield Violation(where, message, "degrees that multiply up to its ranks")
        if name in plan.uses.models:
            yield from module_laws(plan, name, layout, where)
            yield from feature_laws(plan, name, where)
        if layout.schedule and name in feeding:
            message = f"the schedule of `{name}` has no effect: its passes are inserted into the order of what it feeds"
            yield Violation(f"{where}.schedule", message, "leave `schedule` out, or use placements")


def module_laws(plan: Plan, name: str, layout: Layout, where: str) -> Iterator[Violation]:
    """Check all fields of one layout against its module."""
    module = plan.uses.models[name]
    broken = [*range_laws(layout.experts, module, f"{where}.experts")]
    if broken:  # the laws below need the placement of each layer's experts
        yield from broken
        return
    for laws in (stage_laws, tensor_laws, unshardable_laws, expert_laws, exchange_laws, recompute_laws):
        yield from laws(layout, module, where)
    yield from fixed_laws(plan, name, layout)


def tensor_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """The degree tp divides the heads, and the experts' mesh fits."""
    tp = layout.tp
    if module.heads % tp:
        yield Violation(where, f"{module.heads} heads cannot be sharded over tp = {tp}", "a tp that divides the heads")
    yield from mesh_laws(layout, module, where)


def mesh_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """The degree ep divides the experts, etp their width, and both together the ranks of a stage."""
    moe, ep, etp = module.routed_experts, layout.ep, layout.etp
    if moe is None and ep * etp > 1:
        yield Violation(where, "the module has no experts to shard", "leave ep and etp out")
    elif moe and (moe.experts % ep or moe.ffn % etp):
        message = f"{moe.experts} experts of width {moe.ffn} cannot be sharded over ep = {ep}, etp = {etp}"
        yield Violation(where, message, "an ep that divides the experts, an etp that divides their width")
    if stage_size(layout) % (ep * etp):
        message = f"a stage has {stage_size(layout)} ranks, the experts' mesh holds {ep * etp}"
        yield Violation(where, message, "let ep x etp divide them")


def unshardable_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Modules that need whole documents or all layers on a rank have no cp or pp; tp divides groups of scans."""
    if module.unshardable_reason and layout.cp > 1:
        yield Violation(f"{where}.cp", f"{module.unshardable_reason}, and cp = {layout.cp} shards them", "cp: 1")
    if module.unpipelined_reason and layout.pp > 1:
        yield Violation(f"{where}.pp", f"{module.unpipelined_reason}, and pp = {layout.pp}", "pp: 1")
    if module.scan_groups % layout.tp:
        message = f"{module.scan_groups} groups of heads cannot be sharded over tp = {layout.tp}"
        yield Violation(f"{where}.tp", message, "a tp that divides the groups")


def stage_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """There are pp · vpp stages, and they cover the layers in order."""
    stage_count = layout.pp * layout.vpp
    if len(layout.stages) != stage_count and (layout.stages or stage_count > 1):
        chunks = f" and vpp = {layout.vpp}" if layout.vpp > 1 else ""
        fix = f"name {stage_count} ranges of layers, or change pp or vpp" if stage_count > 1 else "name no stages"
        yield Violation(where, f"{len(layout.stages)} stages for pp = {layout.pp}{chunks}", fix)
    elif layout.stages and (broken := broken_partition(layout.stages, module.layers)):
        yield Violation(f"{where}.stages", *broken)


def exchange_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """`dispatch` needs experts, and a dtype of gradients needs a reduction."""
    if layout.dispatch != "all_to_all" and module.routed_experts is None:
        message = f"dispatch {layout.dispatch} says how tokens come to experts, and the module has none"
        yield Violation(where, message, "leave `dispatch` out")
    if layout.gradients != "float32" and not reduces_gradients(layout, module):
        message = f"gradients are reduced in {layout.gradients}, and no parameter has replicas"
        yield Violation(where, message, "leave `gradients` out, or add replicas")


def recompute_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Ranges of `recompute` name existing layers, each once; parts that are named, to be offloaded too, are in some
    layer.
    """
    by_range = layout.recompute if isinstance(layout.recompute, dict) else {"": layout.recompute}
    if isinstance(layout.recompute, dict):
        yield from range_laws(layout.recompute, module, f"{where}.recompute")
    known_parts = module_parts(module)
    for layers, how in by_range.items():
        for part in how if isinstance(how, tuple) else ():
            if part not in known_parts:
                key = f"{where}.recompute{f'.{layers}' if layers != '' else ''}"
                yield Violation(key, f"no layer has part `{part}` to recompute", f"some of {', '.join(known_parts)}")
    for part in {*layout.offloaded_parts} - {*known_parts}:
        yield Violation(f"{where}.offload", f"no layer has `{part}` to offload", f"some of {', '.join(known_parts)}")


def expert_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Ranges of `experts` name layers with experts, and their meshes fit."""
    for layer_range in layout.experts:
        layers, key = Layers.from_file(layer_range), f"{where}.experts.{layer_range}"
        if any(has_experts(module, layer) for layer in layers):
            yield from mesh_laws(layout.at_layer(layers[0]), module, key)
        else:
            yield Violation(key, f"layers {layers} have no experts", "name layers that have some, or leave it out")


def range_laws(layer_ranges: Iterable[str | int], module: Module, where: str) -> Iterator[Violation]:
    """Ranges name existing layers, each layer once."""
    try:
        counts = Counter(layer for layers in layer_ranges for layer in Layers.from_file(layers))
    except ValueError as error:  # its text is `what is wrong | what to do`
        message, _, fix = str(error).rpartition(" | ")
        yield Violation(where, message, fix)
        return
    missing = [layer for layer in counts if layer >= module.layers]
    if missing:
        message = f"layer {min(missing)} does not exist, there are {module.layers}"
        yield Violation(where, message, f"name layers of 0-{module.layers - 1}")
    repeated = [layer for layer, count in counts.items() if count > 1]
    if repeated:
        message = f"layer {min(repeated)} is in {counts[min(repeated)]} of the ranges"
        yield Violation(where, message, "let no ranges overlap")


def fixed_laws(plan: Plan, name: str, layout: Layout) -> Iterator[Violation]:
    """Fields that the job fixed have the fixed values in the plan."""
    module, fixed = plan.uses.models[name], plan.uses.fix.layouts.get(name, Parallelism())
    # Where the placement of experts differs between layers, there is a layout of each placement.
    variants = (expert_layouts(layout, module) if layout.experts else []) or [layout]
    for field, value in decided_fields(fixed).items():
        value = first_stage_ranks(plan, name) if isinstance(value, FirstStage) else value
        values = [getattr(variant, field) for variant in variants]
        wanted = normalised(layout, field, value, module)
        different = [other for other in values if normalised(layout, field, other, module) != wanted]
        if field == "schedule":
            yield from fixed_schedule_laws(plan, name, str(value))
        elif different:
            message = f"{field} is fixed to {yaml_text(value)}, and the layout has {yaml_text(different[0])}"
            fix = f"{field}: {yaml_text(value)}, or another one in uses.fix.layouts.{name}"
            yield Violation(f"layouts.{name}.{field}", message, fix)


def first_stage_ranks(plan: Plan, name: str) -> Ranks:
    """Return the ranks of the first stage of the module that reads this one; of several, which share them, the first's.
    No ranks where no module does, which is another violation.
    """
    readers = (plan.layouts[edge.target] for edge in plan.edges if edge.source == name)
    return next((stage_ranks(reader, 0) for reader in readers), Ranks())


def fixed_schedule_laws(plan: Plan, name: str, fixed: str) -> Iterator[Violation]:
    """Each step has the schedule that the job fixed."""
    default = default_schedule(plan.layouts[name].vpp)
    fix = f"{fixed}, or another uses.fix.layouts.{name}"
    for number, step in enumerate(plan.steps):
        order = plan.order_of(step, name) or default
        if order != fixed:
            where = f"steps[{number}].order.{name}" if name in step.order else f"layouts.{name}.schedule"
            actual = order if isinstance(order, str) else "another, slot by slot"
            yield Violation(where, f"the schedule is fixed to {fixed}, and the plan has {actual}", fix)


def normalised(layout: Layout, field: str, value: object, module: Module) -> object:
    """Return a field's value in a form that is equal for equivalent layouts."""
    if field == "rank_order":
        return [dim for dim in str(value).split("-") if getattr(layout, dim) > 1]
    if field == "recompute":
        return [with_fields(layout, recompute=value).layer_recompute(layer) for layer in range(module.layers)]
    return value


def yaml_text(value: object) -> str:
    """Return a value as written in a plan file."""
    if isinstance(value, Ranks):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_text(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, tuple) else str(value)
