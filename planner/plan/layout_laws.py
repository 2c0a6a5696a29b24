"""Is this way to spread a module possible? Meshes fill their ranks, stages cover the layers, and what is said of
experts, of gradients and of recomputation is said of what there is.
"""

from collections import Counter
from collections.abc import Iterator
from math import prod

from planner.plan.meets import reduces
from planner.plan.mesh import stage_size
from planner.plan.model import Layout, Plan
from planner.plan.names import Violation
from planner.specs.base import Layers
from planner.specs.layers import experts_of
from planner.specs.model import Module

MESH_DIMS, EXPERT_DIMS = ("replica", "dp", "pp", "tp"), ("ep", "etp")


def layout_laws(plan: Plan) -> Iterator[Violation]:
    """Meshes fill their ranks; stages cut the layers into consecutive ranges."""
    for name, layout in plan.layouts.items():
        where = f"layouts.{name}"
        if any(rank >= plan.size for rank in layout.ranks):
            yield Violation(where, f"rank {layout.ranks[-1]} does not exist, there are {plan.size}", "use lower ranks")
        for dim in layout.mesh:
            if dim not in MESH_DIMS:
                yield Violation(where, f"no dim of a mesh is called `{dim}`", f"one of {', '.join(MESH_DIMS)}")
        size = prod(layout.mesh.values())
        if size != len(layout.ranks):
            yield Violation(
                where, f"the mesh holds {size} ranks, the layout has {len(layout.ranks)}", "make them equal"
            )
        if name in plan.uses.models:
            for laws in (stage_laws, split_of_module_laws, exchange_laws, recompute_laws):
                yield from laws(layout, plan.uses.models[name], where)


def split_of_module_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Heads are shared out over tp; experts have a mesh of their own over a stage's ranks, which shares them out."""
    tp = layout.mesh.get("tp", 1)
    if module.heads % tp:
        yield Violation(where, f"{module.heads} heads do not spread over tp = {tp}", "a tp that divides the heads")
    moe, ep, etp = experts_of(module), layout.experts.get("ep", 1), layout.experts.get("etp", 1)
    for dim in layout.experts:
        if dim not in EXPERT_DIMS:
            yield Violation(where, f"no dim of the experts is called `{dim}`", f"one of {', '.join(EXPERT_DIMS)}")
    if moe is None and ep * etp > 1:
        yield Violation(where, "the module has no experts to spread", "leave `experts` out")
    elif moe and (moe.experts % ep or moe.ffn % etp):
        message = f"{moe.experts} experts of width {moe.ffn} do not spread over ep = {ep}, etp = {etp}"
        yield Violation(where, message, "an ep that divides the experts, an etp that divides their width")
    if stage_size(layout) % (ep * etp):
        message = f"a stage has {stage_size(layout)} ranks, the experts' mesh holds {ep * etp}"
        yield Violation(where, message, "let ep x etp divide them")


def stage_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Chunks of layers for each pipeline rank, as many as for any other; of one rank, a single one."""
    stages = layout.mesh.get("pp", 1)
    several = len(layout.stages) > 1 and stages == 1
    if len(layout.stages) % stages or several or (stages > 1 and not layout.stages):
        fix = "name one range of layers per stage, or as many for each" if stages > 1 else "name no stages"
        yield Violation(where, f"{len(layout.stages)} stages for pp = {stages}", fix)
    elif layout.stages and [i for stage in layout.stages for i in stage] != list(range(module.layers)):
        yield Violation(
            where, f"the stages do not cover layers 0-{module.layers - 1} in order", "cover each layer once"
        )


def exchange_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """What is said of an exchange is said of one that there is."""
    if layout.dispatch != "all_to_all" and experts_of(module) is None:
        message = f"dispatch {layout.dispatch} says how tokens come to experts, and the module has none"
        yield Violation(where, message, "leave `dispatch` out")
    if layout.gradients != "float32" and not reduces(layout, module):
        message = f"gradients are sent in {layout.gradients}, and every rank has parameters of its own"
        yield Violation(where, message, "leave `gradients` out, or add replicas")


def recompute_laws(layout: Layout, module: Module, where: str) -> Iterator[Violation]:
    """Ranges are of layers that there are, each named once."""
    if not isinstance(layout.recompute, dict):
        return
    try:
        named = Counter(layer for layers in layout.recompute for layer in Layers.from_file(layers))
    except ValueError as error:  # it says `what is wrong | what to do`
        message, _, fix = str(error).rpartition(" | ")
        yield Violation(f"{where}.recompute", message, fix)
        return
    beyond = [layer for layer in named if layer >= module.layers]
    if beyond:
        message = f"layer {min(beyond)} does not exist, there are {module.layers}"
        yield Violation(f"{where}.recompute", message, f"name layers of 0-{module.layers - 1}")
    twice = [layer for layer, count in named.items() if count > 1]
    if twice:
        message = f"layer {min(twice)} is in {named[min(twice)]} of the ranges"
        yield Violation(f"{where}.recompute", message, "let no ranges overlap")
