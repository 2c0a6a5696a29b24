"""Exact counts of the parameters that a job trains: all of a module, its projector, or adapters of some rank."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs.base import Name, with_fields
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, LayerKind, block_entry, kind_blocks
from planner.specs.layers.embedding_head import ShardedDim
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.layers.trained import AdaptedPart, Trained
from planner.specs.model import Model, trained_reference
from planner.specs.parameters import layer_parameters

Number = Any  # a number, or an array of them


class AdaptableMatrix(NamedTuple):
    """A matrix (outputs, inputs) that may have an adapter, and its dim that tp shards."""

    part: AdaptedPart
    inputs: int
    outputs: int
    sharded_dim: ShardedDim

    def on_rank(self, tp: Number) -> tuple[Number, Number]:
        """Return its inputs and outputs on one of tp ranks: the dim that is not sharded is whole on each."""
        inputs, outputs = (tp if self.sharded_dim == dim else 1 for dim in ("inputs", "outputs"))
        return self.inputs / inputs, self.outputs / outputs


def adapted_matrices(module: Module, kind: LayerKind) -> list[AdaptableMatrix]:
    """Return the matrices of one layer of a kind that have adapters; none where the module trains none."""
    lora = module.adapters
    if lora is None:
        return []
    own, what = module.of_kind(kind), "which matrices may have adapters"
    each = [block_entry(block, ADAPTABLE, what)(own) for block in kind_blocks(kind)]
    return [matrix for block in each for matrix in block if matrix.part in lora.parts]


def adapter_parameters(module: Module, kind: LayerKind, tp: Number = 1) -> Number:
    """Return the parameters of one layer's adapters on one of tp ranks."""
    lora = module.adapters
    return lora.rank * sum(sum(matrix.on_rank(tp)) for matrix in adapted_matrices(module, kind)) if lora else 0


def trained_layer_parameters(module: Module, kind: LayerKind) -> int:
    """Return the trained parameters of one layer of a kind."""
    return layer_parameters(module, kind) if module.trained == "all" else int(adapter_parameters(module, kind))


def trained_embedding_head_parameters(module: Module) -> int:
    """Return the trained parameters outside the layers; tied weights count once."""
    return sum(end.parameters for end in module.embedding_head if not end.tied and module.trains_end(end))


def trained_parameters(module: Module) -> int:
    """Return the trained parameters of a module."""
    layers = sum(trained_layer_parameters(module, kind) * count for kind, count in kind_counts(module).items())
    return layers + trained_embedding_head_parameters(module)


def attention_matrices(module: Module) -> list[AdaptableMatrix]:
    """Return the projections of attention, those of latent attention by their low-rank halves."""
    latent = module.latent_attention
    if latent is None:
        return projection_matrices(module, module.hidden)
    queries, hidden = module.heads * head_dim(module), module.hidden
    read = AdaptableMatrix("qkv", hidden, latent.kv_rank + latent.rope_dim, "")
    keys = AdaptableMatrix("qkv", latent.kv_rank, module.heads * (latent.nope_dim + latent.value_dim), "outputs")
    output = AdaptableMatrix("output", module.heads * latent.value_dim, hidden, "inputs")
    if not latent.q_rank:
        return [AdaptableMatrix("qkv", hidden, queries, "outputs"), read, keys, output]
    asked = AdaptableMatrix("qkv", hidden, latent.q_rank, "")
    return [asked, AdaptableMatrix("qkv", latent.q_rank, queries, "outputs"), read, keys, output]


def cross_attention_matrices(module: Module) -> list[AdaptableMatrix]:
    """Return the projections of cross attention."""
    return projection_matrices(module, module.cross_attention_width)


def projection_matrices(module: Module, key_input_width: int) -> list[AdaptableMatrix]:
    """Return the projections of queries, keys, values and output."""
    queries, keys = module.heads * head_dim(module), kv_heads(module) * head_dim(module)
    key = AdaptableMatrix("qkv", key_input_width, keys, "outputs")
    return [
        AdaptableMatrix("qkv", module.hidden, queries, "outputs"),
        key,
        key,
        AdaptableMatrix("output", queries, module.hidden, "inputs"),
    ]


def mlp_matrices(module: Module, width: int | None = None) -> list[AdaptableMatrix]:
    """Return the matrices of an MLP of this width; None: of the dense one."""
    wide = width or module.ffn
    entering = AdaptableMatrix("mlp", module.hidden, wide, "outputs")
    return [entering] * (2 if module.gated else 1) + [AdaptableMatrix("mlp", wide, module.hidden, "inputs")]


def shared_expert_matrices(module: Module) -> list[AdaptableMatrix]:
    """Return the matrices of the shared experts: routed ones have no adapters."""
    moe = module.routed_experts
    return mlp_matrices(module, moe.shared_ffn) if moe and moe.shared_ffn else []


def state_space_matrices(module: Module) -> list[AdaptableMatrix]:
    """Return the projections around a state space."""
    space = module.ssm
    assert space is not None
    return [
        AdaptableMatrix("qkv", module.hidden, sum(space.projection_widths), "outputs"),
        AdaptableMatrix("output", space.inner_width, module.hidden, "inputs"),
    ]


def linear_attention_matrices(module: Module) -> list[AdaptableMatrix]:
    """Return the projections around linear attention."""
    shape = module.linear_attention_shape
    assert shape is not None
    return [
        AdaptableMatrix("qkv", module.hidden, shape.projected_width, "outputs"),
        AdaptableMatrix("output", shape.inner_width, module.hidden, "inputs"),
    ]


def table_matrices(module: Module) -> list[AdaptableMatrix]:
    """Return the matrices of a described layer that each token is multiplied by."""
    return [
        AdaptableMatrix("mlp" if each.outputs == module.hidden else "qkv", each.inputs, each.outputs, each.shard)
        for each in module.layer_table.matrices
        if each.count == 1
    ]


ADAPTABLE: dict[Block, Callable[[Module], list[AdaptableMatrix]]] = {
    "attention": attention_matrices,
    "cross_attention": cross_attention_matrices,
    "mlp": mlp_matrices,
    "experts": shared_expert_matrices,
    "state_space": state_space_matrices,
    "linear_attention": linear_attention_matrices,
    "matrices": table_matrices,
    "attending_matrices": table_matrices,
}


def with_trained(model: Model, trained: Mapping[Name, Trained], path: Path) -> Model:
    """Return the model with what a job trains of its modules. `path`: the job's file. Raises InputError."""
    modules = dict(model.modules)
    for name, what in trained.items():
        message, fix = trained_fault(model, name, what)
        if message:
            raise InputError(message, where=files.place(path, "trained", name), fix=fix)
        modules[name] = with_fields(modules[name], trained=what)
        if what != "none" and not trained_parameters(modules[name]):
            fix = "name other parts, or say none"
            raise InputError(f"no matrix of `{name}` has adapters", where=files.place(path, "trained", name), fix=fix)
    if all(module.trained == "none" for module in modules.values()):
        fix = "leave one of its modules out, or say projector"
        raise InputError("no module is trained", where=files.place(path, "trained"), fix=fix)
    for name in (name for name in model.references if modules[name].trained != "none"):
        where, fix = files.place(path, "trained"), f"trained: {{{name}: none}}"
        raise InputError(trained_reference(name), where=where, fix=fix)
    return with_fields(model, modules=modules)


def trained_fault(model: Model, name: str, what: Trained) -> tuple[str, str]:
    """Return why this cannot be trained of a module, and the fix; empty where it can."""
    if name not in model.modules:
        return f"{model.name} has no module `{name}`", f"name one of {', '.join(model.modules)}"
    if what == "projector" and not has_projector(model.modules[name]):
        having = [each for each, module in model.modules.items() if has_projector(module)]
        return (
            f"`{name}` has no projector",
            f"train that of {' or '.join(having)}" if having else "say all, none or lora",
        )
    if what == "projector" and not model.targets(name):
        return f"`{name}` feeds no module that its projector is for", "say all, none or lora"
    return "", ""


def has_projector(module: Module) -> bool:
    """Return whether a module has weights called its projector."""
    return any(end.role == "projector" for end in module.embedding_head)
