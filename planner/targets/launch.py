"""What a program is told to start, whatever the program: a module, its layout, and the step."""

from typing import Any

from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.base import Count, Layers, RankCount, Ranks, SampleCount, Spec, spec_of, with_fields
from planner.specs.layers import Decoder, Module
from planner.specs.layers.components import Experts, LatentAttentionShape, StateSpace
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.parallelism import DEFAULT_RANK_ORDER, MESH_DIMS, Parallelism, Recompute, decided_fields


class Encoders(Spec, kw_only=True):
    """Modules whose outputs are tokens of the LLM: all on the first ranks, in front of its own, or all on all ranks."""

    modules: dict[str, Module]
    layout: Parallelism
    apart: bool


NESTED: dict[str, type[Spec]] = {  # path → what its fields make
    "encoders.layout": Parallelism,
    "encoders": Encoders,
    "module.moe": Experts,
    "module.latent": LatentAttentionShape,
    "module.state_space": StateSpace,
    "module": Decoder,
    "layout": Parallelism,
}


class Launch(Spec, kw_only=True):
    """One module on all ranks that encoders leave it, and steps of sequences of one length."""

    module: Module
    layout: Parallelism
    tokens: Count  # of each sequence
    sequences: SampleCount  # of a step
    ranks: RankCount
    per_node: RankCount
    reduces_early: bool = True  # gradients are reduced beside backward
    gathers_early: bool = True  # updated weights are gathered beside the next forward
    blackwell: bool = False  # devices have compute capability 10 or more
    encoders: Encoders | None = None

    @property
    def offset(self) -> int:
        """The first rank of the module: as many ranks are in front of it as encoders have alone."""
        if not self.encoders or not self.encoders.apart:
            return 0
        return (self.encoders.layout.tp or 1) * (self.encoders.layout.dp or 1)


def blackwell(device: str) -> bool:
    """Whether a device, by its name, has compute capability 10."""
    return device.startswith(("b200", "b300", "gb200", "gb300"))


def fields_of(spec: Spec, path: str = "") -> dict[str, Any]:
    """Every field of a launch by its path: specs as a whole, and their fields."""
    fields: dict[str, Any] = {}
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        fields[f"{path}{name}"] = value
        if isinstance(value, Spec):
            fields |= fields_of(value, f"{path}{name}.")
    return fields


def launch_of(fields: dict[str, Any]) -> Launch:
    """The launch of these fields. Raises InputError where they exclude each other."""
    left = dict(fields)
    for path, kind in NESTED.items():
        own = {name.removeprefix(f"{path}."): left.pop(name) for name in [*left] if name.startswith(f"{path}.")}
        if own:
            left[path] = spec_of(kind, own)
    launch: Launch = spec_of(Launch, left)
    return launch


def layout_of(launch: Launch) -> Layout:
    """The layout of a launch for a plan, with defaults for what is not decided."""
    return decided_layout(launch.layout, range(launch.offset, launch.ranks))


def encoder_layout(launch: Launch) -> Layout:
    """The layout of its encoders for a plan."""
    assert launch.encoders, "there are encoders"
    return decided_layout(launch.encoders.layout, range(launch.offset or launch.ranks))


def decided_layout(layout: Parallelism, ranks: range) -> Layout:
    decided = {name: value for name, value in decided_fields(layout).items() if name != "ranks"}
    return with_fields(Layout(ranks=Ranks(ranks)), **decided)


def canonical(launch: Launch) -> Launch:
    """The launch with every field decided, in the one way of those that train the same: no field that has no effect."""
    layout = canonical_layout(layout_of(launch), launch.module)
    early = launch.reduces_early if layout_of(launch).dp * (layout.cp or 1) * (layout.replica or 1) > 1 else True
    encoders = launch.encoders
    if encoders:
        module = next(iter(encoders.modules.values()))
        encoders = with_fields(encoders, layout=canonical_layout(encoder_layout(launch), module))
    return with_fields(
        launch,
        module=canonical_module(launch.module, layout.tp or 1),
        layout=layout,
        reduces_early=early,
        gathers_early=launch.gathers_early and early if layout.zero else True,
        encoders=encoders,
    )


def canonical_layout(full: Layout, module: Module) -> Parallelism:
    """The layout of a module with every field decided."""
    ordered = [dim for dim in full.rank_order.split("-") if getattr(full, dim) > 1]
    usual = ordered == [dim for dim in MESH_DIMS if dim in ordered]
    replicas = full.dp * full.cp * full.replica
    chunks = full.pp * full.vpp
    experts = module.routed_experts
    own: dict[str, Any] = {
        "ranks": None,
        "rank_order": DEFAULT_RANK_ORDER if usual else "-".join(ordered),
        "sequence_parallel": full.sequence_parallel or full.tp == 1,
        "stages": tuple(full.stages or even_stages(module.layers, chunks)) if chunks > 1 else (),
        "schedule": None if full.schedule in ("1f1b", "interleaved") else full.schedule,
        "recompute": one_way(full.recompute, module.layers),
        "zero": full.zero if replicas > 1 else 0,
        "gradients": full.gradients if replicas > 1 else "float32",
        "ep": full.ep if experts else 1,
        "etp": full.etp if experts else 1,
        "dispatch": full.dispatch if experts and full.ep > 1 else "all_to_all",
        "overlap": tuple(sorted(full.overlap)),
    }
    return Parallelism(**{name: getattr(full, name) for name in Parallelism.__struct_fields__} | own)


def canonical_module(module: Module, tp: int) -> Module:
    """A module with its widths said, and as many rows of the embedding as tp divides."""
    own: dict[str, Any] = {"heads": module.heads, "kv_heads": kv_heads(module)}
    own["head_dim"] = None if module.latent_attention else head_dim(module)
    own["activation"] = module.mlp_activation
    if getattr(module, "vocab", 0):
        own["vocab"] = -(-module.output_vocabulary // tp) * tp
    return with_fields(module, **own)


def one_way(how: Recompute | dict[str | int, Recompute], layers: int) -> Recompute | dict[str | int, Recompute]:
    """Recomputation of layers: a word where it is that of all, else ranges of those that recompute anything."""
    if not isinstance(how, dict):
        return how
    by_kind: dict[Recompute, list[int]] = {}
    for named, own in how.items():
        by_kind.setdefault(own, []).extend(Layers.from_file(named))
    ranges = {kind: Layers(sorted(own)) for kind, own in by_kind.items() if kind != "none" and own}
    if len(ranges) == 1 and len(next(iter(ranges.values()))) == layers:
        return next(iter(ranges))
    return {own.to_file(): kind for kind, own in sorted(ranges.items(), key=lambda each: each[1])} or "none"
