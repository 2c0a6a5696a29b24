"""FLOPs and widths of modules.

Where layers are of several kinds, `kind` selects one of them; None means the mean over the module's layers.
"""

from collections import Counter
from collections.abc import Callable
from math import lcm

from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind, attends, kind_blocks, only_reads
from planner.specs.layers.head_widths import head_dim, kv_heads, value_dim
from planner.specs.parallelism import Dtype
from planner.specs.parameters import active_layer_parameters

DTYPE_BYTES: dict[Dtype, int] = {"bf16": 2, "fp8": 2, "float32": 4, "float64": 8}
# Per parameter: weights, gradients, Adam's moments, and the float32 copy of narrower weights.
STATE_BYTES: dict[Dtype, int] = {"bf16": 16, "fp8": 16, "float32": 16, "float64": 32}


LOG_PROBABILITY_BYTES = 4  # of one token, in float32


def token_output_bytes(module: Module, dtype: Dtype) -> float:
    """Return the bytes that another module reads of one token in a module's layers: its share of an output, or of a
    module that ends in a loss the log-probability of its target.
    """
    if not module.feature_width:
        return LOG_PROBABILITY_BYTES
    return module.sent_width / module.tokens_per_output * DTYPE_BYTES[dtype]


def query_width(module: Module) -> int:
    """Return the width of all heads' queries."""
    return module.heads * head_dim(module)


def key_width(module: Module) -> int:
    """Return the width of all heads' keys."""
    return kv_heads(module) * head_dim(module)


def value_width(module: Module) -> int:
    """Return the width of all heads' values."""
    return kv_heads(module) * value_dim(module)


def attention_output_width(module: Module) -> int:
    """Return the width of attention's result, the input of its output projection."""
    return module.heads * value_dim(module)


def layer_flops(module: Module, kind: LayerKind | None = None) -> tuple[float, float]:
    """Return forward FLOPs of one layer: per squared length of a sequence (attention), and per token (matmuls).

    Of experts, those that a token is sent to count. Attention is counted without a window: see `attention_flops`.
    """
    causal = 0.5 if module.causal else 1.0
    squared = mean_over_layers(
        module, kind, lambda each: 2.0 * causal * pair_width(module.of_kind(each)) if attends(each) else 0.0
    )
    per_token = mean_over_layers(
        module, kind, lambda each: 2.0 * active_layer_parameters(module, each) + scan_flops(module, each)
    )
    return squared, per_token


def pair_width(module: Module) -> int:
    """Return the products of a pair of tokens in attention: of scores, values, and an indexer's scores."""
    return query_width(module) + attention_output_width(module) + index_width(module)


def index_width(module: Module) -> int:
    """Return the width of all heads of an indexer, which scores each pair of tokens; 0 without one."""
    return module.token_indexer.heads * module.token_indexer.dim if module.token_indexer else 0


def scan_flops(module: Module, kind: LayerKind) -> float:
    """Return forward FLOPs per token of a scan in one layer, by a state space or by linear attention: products over a
    chunk and with the state.
    """
    space, linear = module.ssm, module.linear_attention_shape
    if {"matrices", "attending_matrices"} & {*kind_blocks(kind)}:
        return module.of_kind(kind).layer_table.flops
    if linear and "linear_attention" in kind_blocks(kind):
        return 2.0 * linear.heads * linear.scan_products
    if space is None or "state_space" not in kind_blocks(kind):
        return 0.0
    inner = space.heads * space.head_dim
    return 2.0 * (space.chunk * (space.groups * space.state + inner) + 2 * space.state * inner)


def attention_flops(module: Module, layer: int, length: int) -> float:
    """Return the exact forward FLOPs of QKᵀ and PV in one layer over one sequence, with its window or the tokens that
    an indexer chooses by its scores of all.
    """
    window = module.window_of(layer)
    module = module.of_kind(module.layer_kind(layer))
    pairs = attended_pairs(length, module.causal, window)
    scored = attended_pairs(length, module.causal, None) if module.token_indexer else 0
    return 2.0 * (query_width(module) + attention_output_width(module)) * pairs + 2.0 * index_width(module) * scored


def attended_pairs(length: int, causal: bool, window: int | None) -> int:
    """Return the number of pairs of a token and one that it attends to.

    A causal window slides, any other divides the sequence into blocks.
    """
    window = min(window or length, length)
    if causal:
        return window * (window + 1) // 2 + (length - window) * window
    blocks, rest = divmod(length, window) if length else (0, 0)
    return blocks * window**2 + rest**2


def embedding_head_flops(module: Module) -> float:
    """Return forward FLOPs per token outside the layers: of the head, or of patch embedding and projector."""
    return sum(end.flops for end in module.embedding_head)


def mean_over_layers(module: Module, kind: LayerKind | None, count: Callable[[LayerKind], float]) -> float:
    """Return a count of a layer of this kind; None: its mean over the module's layers."""
    if kind is not None:
        return count(kind)
    counts = kind_counts(module)
    if len(counts) == 1:
        return count(*counts)
    return sum(count(each) * number for each, number in counts.items()) / module.layers


def ulysses_elements(module: Module, degree: int) -> int:
    """Return elements per token that Ulysses exchanges in one layer and one pass: q, k, v, and the output."""
    repeated = lcm(kv_heads(module), degree)  # key/value heads are repeated where there are fewer than ranks
    return query_width(module) + attention_output_width(module) + repeated * (head_dim(module) + value_dim(module))


def ring_elements(module: Module, ulysses: int, ring: int) -> float:
    """Return elements per token of a sequence that a rank sends around a ring in one layer: the keys and values of all
    ring positions but one, of the heads that it has after Ulysses.
    """
    repeated = lcm(kv_heads(module), ulysses)
    return repeated * (head_dim(module) + value_dim(module)) / ulysses * (ring - 1) / ring


def resident_layers(layers: int, offload: float) -> float:
    """Return how many of a rank's layers, as a mean, keep their activations on the device at this share of offload.

    Those of the first and the last layer stay: there is no compute left that would overlap their transfers.
    """
    return layers - offload * max(0, layers - 2)


def cross_attention_flops(module: Module, sizes: tuple[int, ...], read: tuple[int, ...]) -> float:
    """Forward FLOPs of cross attention beyond `layer_flops`, over items of these tokens and outputs read: QKᵀ and PV of
    each pair of a token and an output, and keys and values of the outputs in place of the tokens. Layers with nothing
    but cross attention are skipped by items that read nothing.
    """
    pairs = sum(own * other for own, other in zip(sizes, read, strict=True))
    attention = 2.0 * (query_width(module) + attention_output_width(module)) * pairs
    projections = 2.0 * 2.0 * module.cross_attention_width * key_width(module)
    skipping, total = sum(own for own, other in zip(sizes, read, strict=True) if not other), 0.0
    for kind, count in kind_counts(module).items():
        skipped = skipping if only_reads(kind) else 0
        beyond = attention + projections * (sum(read) - sum(sizes)) if "cross_attention" in kind_blocks(kind) else 0.0
        total += count * (beyond - skipped * (2.0 * active_layer_parameters(module, kind) - projections))
    return total


def step_flops(
    module: Module, sizes: tuple[int, ...], read: tuple[int, ...] = (), through_layers: bool = True
) -> float:
    """Return FLOPs of forward and backward over sequences of these sizes, with attention windows. `read`: by item, the
    outputs that its cross attention reads. `through_layers`: whether backward computes gradients of activations; those
    of weights it computes where they are trained.
    """
    passes, ends = 1.0 + through_layers + (module.trained == "all"), 3.0 if module.trained == "projector" else 0.0
    per_token = passes * module.layers * layer_flops(module)[1] + (ends or passes) * embedding_head_flops(module)
    attending = [layer for layer in range(module.layers) if attends(module.layer_kind(layer))]
    layer_of = {(module.layer_kind(layer), module.window_of(layer)): layer for layer in attending}  # one of each
    counts = Counter((module.layer_kind(layer), module.window_of(layer)) for layer in attending)
    attention = 0.0
    for size, number in Counter(sizes).items():
        each = sum(count * attention_flops(module, layer_of[alike], size) for alike, count in counts.items())
        attention += number * each
    if read:
        attention += cross_attention_flops(module, sizes, read)
    return per_token * sum(sizes) + (3.0 if through_layers else 1.0) * attention
