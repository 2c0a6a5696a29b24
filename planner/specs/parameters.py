"""Exact integer parameter counts from shapes. Checked against published totals and against the torch modules."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, LayerKind, blocks, said_of
from planner.specs.layers.heads import head_dim, kv_heads, norm_width
from planner.specs.model import Model
from planner.specs.parts import Latent


class Parameters(NamedTuple):
    """Parameters of one module: its largest layer, and the ends (embeddings, final norm, head or projector)."""

    layer: int  # of each layer where they are alike, else of the largest
    layers: int
    ends: int
    stack: int  # of all layers

    @property
    def total(self) -> int:
        return self.stack + self.ends


@lru_cache(maxsize=1024)  # every task is priced by it
def parameters(module: Module) -> Parameters:
    """Exact count, norm weights and biases included."""
    stack = stack_parameters(module, kind_counts(module))
    return Parameters(layer_parameters(module), module.layers, end_parameters(module), stack)


def model_parameters(model: Model) -> int:
    return sum(parameters(module).total for module in model.modules.values())


def active_parameters(module: Module) -> int:
    """Those that work on a token: all but the experts that it is not sent to."""
    counts = kind_counts(module)
    return sum(active_layer_parameters(module, kind) * count for kind, count in counts.items()) + end_parameters(module)


def of_layers(module: Module, layers: Sequence[int]) -> int:
    """Parameters of these layers together, without the ends."""
    return stack_parameters(module, kind_counts(module, layers))


def stack_parameters(module: Module, counts: Mapping[LayerKind, int]) -> int:
    return sum(layer_parameters(module, kind) * count for kind, count in counts.items())


def layer_parameters(module: Module, kind: LayerKind | None = None) -> int:
    """All blocks of one layer of a kind, each with a norm; None: of the largest that there is."""
    if kind is None:
        return max(layer_parameters(module, each) for each in kind_counts(module))
    norm = norm_width(module, module.hidden)
    return sum(said_of(block, BLOCKS, "the parameters")(module) + norm for block in blocks(kind))


def active_layer_parameters(module: Module, kind: LayerKind) -> int:
    """Of one layer of a kind, those that work on a token."""
    moe = module.routed
    if moe is None or "experts" not in blocks(kind):
        return layer_parameters(module, kind)
    idle = max(0, moe.experts - moe.topk)
    return layer_parameters(module, kind) - idle * mlp_parameters(module, moe.ffn)


def attention_parameters(module: Module) -> int:
    """Projections of queries, keys, values and output, with their biases, norms and sinks."""
    latent = module.compressed
    if latent:
        return latent_parameters(module, latent) + module.sink_heads
    norms = 2 * norm_width(module, head_dim(module)) if module.normed_heads else 0
    return projections(module, module.hidden) + norms + module.sink_heads


def cross_parameters(module: Module) -> int:
    """The same with keys and values of another module's outputs."""
    return projections(module, module.crossing)


def projections(module: Module, keyed: int) -> int:
    """Matrices and biases of queries and output, and of keys and values from vectors so wide."""
    queries, keys = module.heads * head_dim(module), kv_heads(module) * head_dim(module)
    weights = module.hidden * queries + 2 * keyed * keys + queries * module.hidden
    biases = 0
    if module.bias != "none":
        biases += queries + (keys if module.bias == "all_but_key" else 2 * keys)
    if module.bias not in ("none", "qkv"):
        biases += module.hidden
    return weights + biases


def latent_parameters(module: Module, latent: Latent) -> int:
    """Down to the narrow vectors, their norms, up to the heads, and the output; biases where tokens go in and out."""
    hidden, queries = module.hidden, module.heads * head_dim(module)
    down = latent.kv_rank + latent.rope_dim
    up = latent.kv_rank * module.heads * (latent.nope_dim + latent.value_dim)
    norms = norm_width(module, latent.kv_rank)
    if latent.q_rank:
        down += latent.q_rank
        up += latent.q_rank * queries
        norms += norm_width(module, latent.q_rank)
    else:
        up += hidden * queries
    biases = 0 if module.bias == "none" else down
    if module.bias in ("attention", "all"):
        biases += hidden
    return hidden * down + up + norms + module.heads * latent.value_dim * hidden + biases


def state_space_parameters(module: Module) -> int:
    """The projection in, the convolution, a decay, a skip and a step's bias for each head, the norm, the projection
    out; 0 where there is none.
    """
    space = module.recurrent
    if space is None:
        return 0
    made = sum(space.projected)
    matrices = module.hidden * made + space.inner * module.hidden
    convolution = space.convolved * (space.conv + space.conv_bias)
    biases = made + module.hidden if space.bias else 0
    return matrices + convolution + 3 * space.heads + space.inner + biases


def mlp_parameters(module: Module, width: int | None = None) -> int:
    """One MLP of this width; None: the dense one."""
    width, ways_in = width or module.ffn, 2 if module.gated else 1
    biases = ways_in * width + module.hidden if module.bias in ("all", "all_but_key") else 0
    return (ways_in + 1) * module.hidden * width + biases


def moe_parameters(module: Module) -> int:
    """Router, shared experts, and all routed ones."""
    return router_parameters(module) + shared_parameters(module) + expert_parameters(module)


def expert_parameters(module: Module) -> int:
    """All routed experts of one MoE layer; 0 where there are none."""
    moe = module.routed
    return moe.experts * mlp_parameters(module, moe.ffn) if moe else 0


def shared_parameters(module: Module) -> int:
    """The experts of one MoE layer that see every token."""
    moe = module.routed
    return mlp_parameters(module, moe.shared_ffn) if moe and moe.shared_ffn else 0


def router_parameters(module: Module) -> int:
    """What chooses the experts in one MoE layer."""
    moe = module.routed
    return moe.experts * (module.hidden + moe.router_bias) if moe else 0


def end_parameters(module: Module) -> int:
    """Everything outside the layers; what is tied counts once."""
    return sum(end.parameters for end in module.ends if not end.tied)


def counts_text(module: Module) -> str:
    """What a count covers, for a table."""
    parts = dict.fromkeys(end.role for end in module.ends)
    experts = [f"experts ({active_parameters(module):,} active)"] if module.routed else []
    return "layers, " + ", ".join([*parts, *experts, *(["biases"] if module.bias != "none" else [])])


BLOCKS: dict[Block, Callable[[Module], int]] = {
    "attention": attention_parameters,
    "cross_attention": cross_parameters,
    "mlp": mlp_parameters,
    "experts": moe_parameters,
    "state_space": state_space_parameters,
}
