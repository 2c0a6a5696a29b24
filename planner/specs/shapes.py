"""Operation counts and widths of modules: FLOPs, and the elements that flow through a layer."""

from math import lcm

from planner.specs.job import Dtype, Recompute
from planner.specs.model import Decoder, Module, head_dim, kv_heads
from planner.specs.parameters import layer_parameters

BYTES: dict[Dtype, int] = {"bf16": 2, "float32": 4, "float64": 8}
STATE_BYTES: dict[Dtype, int] = {"bf16": 16, "float32": 16, "float64": 32}  # weights, gradients, Adam's moments, master


def query_width(module: Module) -> int:
    return module.heads * head_dim(module)


def key_width(module: Module) -> int:
    return kv_heads(module) * head_dim(module)


def layer_flops(module: Module) -> tuple[float, float]:
    """Forward FLOPs of one layer: per squared token of a sequence (attention), and per token (matmuls)."""
    causal = 0.5 if isinstance(module, Decoder) else 1.0
    return 4.0 * query_width(module) * causal, 2.0 * layer_parameters(module)


def end_flops(module: Module) -> float:
    """Forward FLOPs per token outside the layers: the head, or patch embedding and projector."""
    if isinstance(module, Decoder):
        return 2.0 * module.hidden * module.vocab
    patch = 2.0 * module.channels * module.frames * module.patch**2 * module.hidden
    wide = module.hidden * module.merge**2
    return patch + 2.0 * (wide * wide + wide * module.out) / module.merge**2


def layer_activation_elements(module: Module, recompute: Recompute) -> int:
    """Elements per token that a layer keeps for its backward; attention's own matrix never exists (flash)."""
    if recompute == "full":
        return module.hidden
    attention = 2 * query_width(module) + 2 * key_width(module)  # q, k, v, output
    mlp = (4 if module.gated else 2) * module.ffn  # gate, up, activated gate, product; or up, activated
    if recompute == "selective":  # the MLP's inner activations and the norms' outputs are made again
        return 2 * module.hidden + attention
    return 4 * module.hidden + attention + mlp


def exchange_elements(module: Module, degree: int) -> int:
    """Elements per token that Ulysses moves in one layer and one pass: q, k, v in, the output back."""
    repeated = lcm(kv_heads(module), degree)  # so that few key/value heads spread over many ranks
    return 2 * query_width(module) + 2 * repeated * head_dim(module)


def ring_elements(module: Module, ulysses: int, ring: int) -> float:
    """Elements per token of a sequence that a rank sends around a ring in one layer: the blocks of keys and values of
    all sub-groups but one, as many heads of them as it has after Ulysses.
    """
    repeated = lcm(kv_heads(module), ulysses)
    return 2 * repeated * head_dim(module) / ulysses * (ring - 1) / ring


def resident_layers(layers: int, offload: float) -> float:
    """Of a rank's layers, how many keep their activations on the device when this share of the others' is offloaded.

    The first layer's and the last's stay: nothing is left to compute that would hide their way out, or back.
    """
    return layers - offload * max(0, layers - 2)
