"""Operation counts and widths of modules: FLOPs, and the elements that flow through a layer.

Where layers are of several kinds, `kind` asks for one of them; None means the mean over the module's layers.
"""

from collections import Counter
from collections.abc import Callable
from math import lcm

from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind, blocks
from planner.specs.layers.heads import head_dim, kv_heads, value_dim
from planner.specs.parallelism import Dtype
from planner.specs.parameters import active_layer_parameters

BYTES: dict[Dtype, int] = {"bf16": 2, "fp8": 2, "float32": 4, "float64": 8}
# Weights, gradients, Adam's moments, and the float32 copy of narrower weights.
STATE_BYTES: dict[Dtype, int] = {"bf16": 16, "fp8": 16, "float32": 16, "float64": 32}


def query_width(module: Module) -> int:
    return module.heads * head_dim(module)


def key_width(module: Module) -> int:
    return kv_heads(module) * head_dim(module)


def value_width(module: Module) -> int:
    return kv_heads(module) * value_dim(module)


def output_width(module: Module) -> int:
    """Of attention, in front of its output projection."""
    return module.heads * value_dim(module)


def layer_flops(module: Module, kind: LayerKind | None = None) -> tuple[float, float]:
    """Forward FLOPs of one layer: per squared token of a sequence (attention), and per token (matmuls).

    Of experts, those that a token is sent to. Attention is counted without a window: see `attention_flops`.
    """
    causal = 0.5 if module.causal else 1.0
    squared = 2.0 * (query_width(module) + output_width(module)) * causal
    attentions = mean(module, kind, lambda each: blocks(each).count("attention"))
    per_token = mean(module, kind, lambda each: 2.0 * active_layer_parameters(module, each) + scan_flops(module, each))
    return squared * attentions, per_token


def scan_flops(module: Module, kind: LayerKind) -> float:
    """Forward FLOPs of a state space's scan in one layer, for each token: products over a chunk, and with the state."""
    space = module.recurrent
    if space is None or "state_space" not in blocks(kind):
        return 0.0
    inner = space.heads * space.head_dim
    return 2.0 * (space.chunk * (space.groups * space.state + inner) + 2 * space.state * inner)


def attention_flops(module: Module, layer: int, length: int) -> float:
    """Forward FLOPs of QKᵀ and PV in one layer over one sequence, with its window, to the pair."""
    pairs = attended_pairs(length, module.causal, module.window_of(layer))
    return 2.0 * (query_width(module) + output_width(module)) * pairs


def attended_pairs(length: int, causal: bool, window: int | None) -> int:
    """Pairs of a token and one that it attends to: a causal window slides, another parts the sequence into blocks."""
    window = min(window or length, length)
    if causal:
        return window * (window + 1) // 2 + (length - window) * window
    blocks, rest = divmod(length, window) if length else (0, 0)
    return blocks * window**2 + rest**2


def end_flops(module: Module) -> float:
    """Forward FLOPs per token outside the layers: the head, or what makes tokens, and projector."""
    return sum(end.flops for end in module.ends)


def mean(module: Module, kind: LayerKind | None, count: Callable[[LayerKind], float]) -> float:
    """What is counted of a layer of this kind, or of a layer of the module in the mean."""
    if kind is not None:
        return count(kind)
    counts = kind_counts(module)
    if len(counts) == 1:
        return count(*counts)
    return sum(count(each) * number for each, number in counts.items()) / module.layers


def exchange_elements(module: Module, degree: int) -> int:
    """Elements per token that Ulysses moves in one layer and one pass: q, k, v in, the output back."""
    repeated = lcm(kv_heads(module), degree)  # so that few key/value heads spread over many ranks
    return query_width(module) + output_width(module) + repeated * (head_dim(module) + value_dim(module))


def ring_elements(module: Module, ulysses: int, ring: int) -> float:
    """Elements per token of a sequence that a rank sends around a ring in one layer: the blocks of keys and values of
    all sub-groups but one, as many heads of them as it has after Ulysses.
    """
    repeated = lcm(kv_heads(module), ulysses)
    return repeated * (head_dim(module) + value_dim(module)) / ulysses * (ring - 1) / ring


def resident_layers(layers: int, offload: float) -> float:
    """Of a rank's layers, how many keep their activations on the device when this share of the others' is offloaded.

    The first layer's and the last's stay: nothing is left to compute that would hide their way out, or back.
    """
    return layers - offload * max(0, layers - 2)


PASSES = 3.0  # forward, and backward with the gradients of activations and of weights


def crossing_flops(module: Module, own: int, read: int, pairs: int) -> float:
    """Forward FLOPs of cross attention beyond `layer_flops`: scores and sums of all pairs of a token and one that it
    reads, and keys and values of what is read, in place of as many as there are tokens.
    """
    layers = sum(count * blocks(kind).count("cross_attention") for kind, count in kind_counts(module).items())
    scored = 2.0 * (query_width(module) + output_width(module)) * pairs
    keyed = 2.0 * 2.0 * module.crossing * key_width(module) * (read - own)
    return layers * (scored + keyed)


def step_flops(module: Module, sizes: tuple[int, ...], read: tuple[int, ...] = ()) -> float:
    """Of a step: both passes over all tokens, attention with its windows. `read`: by item, tokens of its cross
    attention.
    """
    per_token = module.layers * layer_flops(module)[1] + end_flops(module)
    attending = [layer for layer in range(module.layers) if "attention" in blocks(module.layer_kind(layer))]
    layers = {module.window_of(layer): layer for layer in attending}  # one of each window
    counts = Counter(module.window_of(layer) for layer in attending)
    attention = 0.0
    for size in set(sizes):
        each = sum(count * attention_flops(module, layers[window], size) for window, count in counts.items())
        attention += sizes.count(size) * each
    if read:
        pairs = sum(own * other for own, other in zip(sizes, read, strict=True))
        attention += crossing_flops(module, sum(sizes), sum(read), pairs)
    return PASSES * (per_token * sum(sizes) + attention)
