"""Exact integer parameter counts from shapes. Checked against published totals and against the torch modules."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from planner.specs.layers import LayerKind, blocks, experts_of, kind_counts, state_space_of
from planner.specs.model import Audio, Decoder, Model, Module, head_dim, kv_heads, latent_of
from planner.specs.parts import Latent

CONVOLUTION = 3  # frames that each of an audio encoder's two convolutions sees (arXiv 2212.04356, §2.2)


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


def stack_parameters(module: Module, counts: dict[LayerKind, int]) -> int:
    return sum(layer_parameters(module, kind) * count for kind, count in counts.items())


def layer_parameters(module: Module, kind: LayerKind | None = None) -> int:
    """The blocks of one layer of a kind, each with its norm; None: of the largest that there is."""
    if kind is None:
        return max(layer_parameters(module, each) for each in kind_counts(module))
    norm = norm_parameters(module, module.hidden)
    return sum(block_parameters(module, block) + norm for block in blocks(kind))


def block_parameters(module: Module, block: str) -> int:
    """Of one block, without the norm in front of it."""
    if block == "attention":
        return attention_parameters(module)
    if block == "state_space":
        return state_space_parameters(module)
    if block == "experts":
        return router_parameters(module) + shared_parameters(module) + expert_parameters(module)
    return mlp_parameters(module)


def active_layer_parameters(module: Module, kind: LayerKind) -> int:
    """Of one layer of a kind, those that work on a token."""
    moe = experts_of(module)
    if moe is None or "experts" not in blocks(kind):
        return layer_parameters(module, kind)
    idle = max(0, moe.experts - moe.topk)
    return layer_parameters(module, kind) - idle * mlp_parameters(module, moe.ffn)


def attention_parameters(module: Module) -> int:
    """Projections of queries, keys, values and output, with their biases, norms and sinks."""
    sinks = module.heads if isinstance(module, Decoder) and module.sinks else 0
    latent = latent_of(module)
    if latent:
        return latent_parameters(module, latent) + sinks
    queries, keys = module.heads * head_dim(module), kv_heads(module) * head_dim(module)
    weights = module.hidden * (queries + 2 * keys) + queries * module.hidden
    biases = 0
    if module.bias != "none":
        biases += queries + (keys if module.bias == "all_but_key" else 2 * keys)
    if module.bias not in ("none", "qkv"):
        biases += module.hidden
    norms = 2 * norm_parameters(module, head_dim(module)) if isinstance(module, Decoder) and module.qk_norm else 0
    return weights + biases + norms + sinks


def latent_parameters(module: Module, latent: Latent) -> int:
    """Down to the narrow vectors, their norms, up to the heads, and the output; biases where tokens go in and out."""
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
    """The projection in, the convolution, a decay, a skip and a step's bias for each head, the norm, the projection
    out; 0 where there is none.
    """
    space = state_space_of(module)
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


def expert_parameters(module: Module) -> int:
    """All routed experts of one MoE layer; 0 where there are none."""
    moe = experts_of(module)
    return moe.experts * mlp_parameters(module, moe.ffn) if moe else 0


def shared_parameters(module: Module) -> int:
    """The experts of one MoE layer that see every token."""
    moe = experts_of(module)
    return mlp_parameters(module, moe.shared_ffn) if moe and moe.shared_ffn else 0


def router_parameters(module: Module) -> int:
    """What chooses the experts in one MoE layer."""
    moe = experts_of(module)
    return moe.experts * (module.hidden + moe.router_bias) if moe else 0


def end_parameters(module: Module) -> int:
    """Everything outside the layers."""
    hidden, norm = module.hidden, norm_parameters(module, module.hidden)
    if isinstance(module, Decoder):
        positions = module.max_positions * hidden if module.positions == "learned" else 0
        return module.vocab * hidden * (1 if module.tied else 2) + positions + norm
    if isinstance(module, Audio):
        convolutions = CONVOLUTION * (module.mels + hidden) * hidden + 2 * hidden
        return convolutions + norm + hidden * module.out + module.out
    patch = module.channels * module.frames * module.patch**2 * hidden
    wide = hidden * module.merge**2
    projector = wide * wide + wide + wide * module.out + module.out  # two biased linears
    return patch + norm + projector


def norm_parameters(module: Module, width: int) -> int:
    return width if module.norm == "rms" else 2 * width


def counts_text(module: Module) -> str:
    """What a count covers, for a table."""
    if isinstance(module, Decoder):
        parts = ["embedding", "tied head" if module.tied else "head", "norms"]
        parts += ["learned positions"] if module.positions == "learned" else []
        parts += [f"experts ({active_parameters(module):,} active)"] if module.moe else []
    elif isinstance(module, Audio):
        parts = ["convolutions", "norms", "projector"]
    else:
        parts = ["patch embedding", "norms", "projector"]
    return "layers, " + ", ".join(parts + (["biases"] if module.bias != "none" else []))
