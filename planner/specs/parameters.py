"""Exact parameter counts from shapes, checked against published totals and the torch modules."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, LayerKind, block_entry, kind_blocks
from planner.specs.layers.components import LatentAttentionShape
from planner.specs.layers.head_widths import head_dim, kv_heads, norm_parameters
from planner.specs.model import Model


class ParameterCounts(NamedTuple):
    """Parameters of one module: its layers, and embedding and head (with the final norm or projector)."""

    largest_layer: int  # of each layer if all are alike, else of the largest
    embedding_head: int
    all_layers: int  # of all layers

    @property
    def total(self) -> int:
        return self.all_layers + self.embedding_head


@lru_cache(maxsize=1024)  # pricing of every task needs it
def parameter_counts(module: Module) -> ParameterCounts:
    """Return the exact counts of parameters of a module, including norms and biases."""
    stack = stack_parameters(module, kind_counts(module))
    return ParameterCounts(layer_parameters(module), embedding_head_parameters(module), stack)


def model_parameters(model: Model) -> int:
    """Return the parameters of all modules of a model together."""
    return sum(parameter_counts(module).total for module in model.modules.values())


def active_parameters(module: Module) -> int:
    """Return the parameters that are used for a token: all but the experts that it is not sent to."""
    counts = kind_counts(module)
    return sum(
        active_layer_parameters(module, kind) * count for kind, count in counts.items()
    ) + embedding_head_parameters(module)


def parameters_of_layers(module: Module, layers: Sequence[int]) -> int:
    """Return the parameters of these layers together, without embedding and head."""
    return stack_parameters(module, kind_counts(module, layers))


def stack_parameters(module: Module, counts: Mapping[LayerKind, int]) -> int:
    """Return the parameters of `counts` layers of each kind together."""
    return sum(layer_parameters(module, kind) * count for kind, count in counts.items())


def layer_parameters(module: Module, kind: LayerKind | None = None) -> int:
    """Return the parameters of one layer of a kind: all blocks, each with a norm, and their gates. None: of the largest
    layer.
    """
    if kind is None:
        return max(layer_parameters(module, each) for each in kind_counts(module))
    norm = module.norms_per_block * norm_parameters(module, module.hidden)
    own = module.of_kind(kind)
    blocks = sum(block_entry(block, BLOCKS, "the parameters")(own) + norm for block in kind_blocks(kind))
    return blocks + gate_parameters(module, kind)


def gate_parameters(module: Module, kind: LayerKind) -> int:
    """Return the parameters of a layer's gates: one for each block of a layer whose blocks are gated."""
    return len(kind_blocks(kind)) if module.gates_residuals(kind) else 0


def active_layer_parameters(module: Module, kind: LayerKind) -> int:
    """Return the parameters of one layer of a kind that are used for a token."""
    total, moe = layer_parameters(module, kind) - idle_table_parameters(module, kind), module.routed_experts
    if moe is None or "experts" not in kind_blocks(kind):
        return total
    return total - max(0, moe.experts - moe.topk) * expert_parameters(module) // moe.experts


def idle_table_parameters(module: Module, kind: LayerKind) -> int:
    """Return the parameters of a described layer's matrices that are not used for a token: of several alike."""
    if not {"matrices", "attending_matrices"} & {*kind_blocks(kind)}:
        return 0
    matrices = module.of_kind(kind).layer_table.matrices
    return round(sum((each.count - each.used) * each.outputs * each.inputs for each in matrices))


def attention_parameters(module: Module) -> int:
    """Return the projections of queries, keys, values and output, with biases, norms and sinks."""
    latent = module.latent_attention
    if latent:
        return latent_parameters(module, latent) + indexer_parameters(module) + module.sink_heads
    queries = module.heads * head_dim(module)
    gate = (module.hidden + (module.bias != "none")) * queries if module.has_attention_gate else 0
    return projection_parameters(module, module.hidden) + gate + qk_norm_parameters(module) + module.sink_heads


def qk_norm_parameters(module: Module) -> int:
    """Return the parameters of norms of queries and keys: of a head each, or of all heads together."""
    if not module.has_qk_norm:
        return 0
    if module.has_whole_qk_norm:
        return norm_parameters(module, (module.heads + kv_heads(module)) * head_dim(module))
    return 2 * norm_parameters(module, head_dim(module))


def indexer_parameters(module: Module) -> int:
    """Return the parameters of an indexer, all of which each rank of tp has: its queries from the compressed ones, its
    key and that key's layer norm, and weights of its heads.
    """
    indexer, latent = module.token_indexer, module.latent_attention
    if indexer is None or latent is None:
        return 0
    return indexer.heads * (indexer.dim * latent.q_rank + module.hidden) + indexer.dim * (module.hidden + 2)


def cross_attention_parameters(module: Module) -> int:
    """Return the parameters of cross attention, whose keys and values are projected from another module's outputs."""
    norms = 2 * norm_parameters(module, head_dim(module)) if module.has_cross_norms else 0
    return projection_parameters(module, module.cross_attention_width) + norms


def projection_parameters(module: Module, key_input_width: int) -> int:
    """Return matrices and biases of queries and output, and of keys and values from vectors of `key_input_width`."""
    queries, keys = module.heads * head_dim(module), kv_heads(module) * head_dim(module)
    weights = module.hidden * queries + 2 * key_input_width * keys + queries * module.hidden
    biases = 0
    if module.bias != "none":
        biases += queries + (keys if module.bias == "all_but_key" else 2 * keys)
    if module.bias not in ("none", "qkv"):
        biases += module.hidden
    return weights + biases


def latent_parameters(module: Module, latent: LatentAttentionShape) -> int:
    """Return the parameters of latent attention: projections to the latent vectors, their norms, projections to heads,
    and the output, with biases of the first and the last.
    """
    hidden, queries = module.hidden, module.heads * head_dim(module)
    down = latent.kv_rank + latent.rope_dim
    up = latent.kv_rank * module.heads * (latent.nope_dim + latent.value_dim)
    norms = norm_parameters(module, latent.kv_rank)
    if latent.q_rank:
        down += latent.q_rank
        up += latent.q_rank * queries
        norms += norm_parameters(module, latent.q_rank)
    else:
        up += hidden * queries
    biases = 0 if module.bias == "none" else down
    if module.bias in ("attention", "all"):
        biases += hidden
    return hidden * down + up + norms + module.heads * latent.value_dim * hidden + biases


def state_space_parameters(module: Module) -> int:
    """Return the input projection, the convolution, each head's decay, skip and time step bias, the norm, and the
    output projection; 0 for a module without a state space.
    """
    space = module.ssm
    if space is None:
        return 0
    projected = sum(space.projection_widths)
    matrices = module.hidden * projected + space.inner_width * module.hidden
    convolution = space.convolution_channels * (space.conv + space.conv_bias)
    biases = projected + module.hidden if space.bias else 0
    return matrices + convolution + 3 * space.heads + space.inner_width + biases


def linear_attention_parameters(module: Module) -> int:
    """Return the input projection, the convolution, each head's decay and time step bias, the norm of a head, and the
    output projection; 0 for a module without linear attention.
    """
    shape = module.linear_attention_shape
    if shape is None:
        return 0
    matrices = module.hidden * (shape.projected_width + shape.inner_width)
    return matrices + shape.convolution_channels * shape.conv + 2 * shape.heads + shape.value_dim


def table_parameters(module: Module) -> int:
    """Return the parameters of layers that are described by their matrices."""
    return module.layer_table.parameters


def mlp_parameters(module: Module, width: int | None = None, outer: int = 0) -> int:
    """Return the parameters of one MLP of this width; None: of the dense one. `outer`: what it reads and writes, where
    that is not the hidden size.
    """
    width, outer, input_matrices = width or module.ffn, outer or module.hidden, 2 if module.gated else 1
    biases = input_matrices * width + outer if module.bias in ("all", "all_but_key") else 0
    return (input_matrices + 1) * outer * width + biases


def moe_parameters(module: Module) -> int:
    """Return the parameters of router, projections around latent experts, shared experts, and all routed experts."""
    return whole_expert_parameters(module) + shared_expert_parameters(module) + expert_parameters(module)


def expert_parameters(module: Module) -> int:
    """Return the parameters of all routed experts of one MoE layer; 0 for a module without any."""
    moe = module.routed_experts
    return moe.experts * mlp_parameters(module, moe.ffn, moe.latent) if moe else 0


def shared_expert_parameters(module: Module) -> int:
    """Return the parameters of the experts of one MoE layer that process every token."""
    moe = module.routed_experts
    return mlp_parameters(module, moe.shared_ffn) if moe and moe.shared_ffn else 0


def whole_expert_parameters(module: Module) -> int:
    """Return the parameters of one MoE layer that every rank has: of the router, of the shared experts' gate, and of
    the projections to and from the width that latent experts work in.
    """
    moe = module.routed_experts
    if moe is None:
        return 0
    return moe.experts * (module.hidden + moe.router_bias) + module.hidden * (moe.shared_gate + 2 * moe.latent)


def embedding_head_parameters(module: Module) -> int:
    """Return all parameters outside the layers; tied weights count once."""
    return sum(end.parameters for end in module.embedding_head if not end.tied)


def counts_text(module: Module) -> str:
    """Return what the count of a module's parameters includes, as text for a table."""
    parts = dict.fromkeys(end.role for end in module.embedding_head)
    experts = [f"experts ({active_parameters(module):,} active)"] if module.routed_experts else []
    return "layers, " + ", ".join([*parts, *experts, *(["biases"] if module.bias != "none" else [])])


BLOCKS: dict[Block, Callable[[Module], int]] = {
    "attention": attention_parameters,
    "cross_attention": cross_attention_parameters,
    "mlp": mlp_parameters,
    "experts": moe_parameters,
    "state_space": state_space_parameters,
    "linear_attention": linear_attention_parameters,
    "matrices": table_parameters,
    "attending_matrices": table_parameters,
}
