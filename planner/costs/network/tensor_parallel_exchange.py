"""Communication of a tensor-parallel group: around matrix products in each pass, and once at the end of a step.

Between products ranks shard the tokens (sequence parallelism, arXiv 2205.05198): they all-gather in front of a block
and reduce-scatter behind it, and backward does the other for each. Recomputation gathers again what it recomputes.
Matrices that tp does not divide are replicated, and need no communication.
"""

from dataclasses import dataclass

from planner.costs.cost_lines import Cost, CostLine, total_cost
from planner.costs.layer_pass import LayerPass
from planner.costs.memory.model_states import replicated_parameters
from planner.costs.network_model import CommGroup, NetworkModel
from planner.plan.plan_file import Layout
from planner.specs.base import Layers
from planner.specs.hardware.profile import ModuleCosts
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, LayerKind, kind_blocks
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import SELECTIVE_PARTS, Dtype, Recompute, parts_of
from planner.specs.parameters import embedding_head_parameters, mlp_parameters
from planner.specs.shapes import DTYPE_BYTES, key_width, mean_over_layers

FLOAT32_BYTES = 4  # bytes of an element in losses and weight gradients, at least


@dataclass(frozen=True, slots=True)
class TensorTraffic:
    """Elements per token that the ranks of a tp group gather and reduce-scatter, and the number of calls."""

    gathered: float = 0.0
    gathers: float = 0.0
    scattered: float = 0.0
    scatters: float = 0.0

    def __add__(self, other: "TensorTraffic") -> "TensorTraffic":
        return TensorTraffic(
            self.gathered + other.gathered,
            self.gathers + other.gathers,
            self.scattered + other.scattered,
            self.scatters + other.scatters,
        )

    def times(self, count: float) -> "TensorTraffic":
        return TensorTraffic(self.gathered * count, self.gathers * count, self.scattered * count, self.scatters * count)

    @property
    def back(self) -> "TensorTraffic":
        """The communication of the backward: reduce-scatter for each all-gather, and the other way round."""
        return TensorTraffic(self.scattered, self.scatters, self.gathered, self.gathers)


def measured_on_one_rank(costs: ModuleCosts) -> bool:
    """Whether these costs were measured on one rank, so that tp's communication comes on top.

    Published or hand-written fits are taken to include it.
    """
    return costs.source in ("measured", "fitted") and costs.tp == 1


def tensor_parallel_line(
    part: LayerPass, module: Module, dtype: Dtype, block: CommGroup, network: NetworkModel
) -> tuple[CostLine, Cost]:
    """The cost line of one pass's tp communication; and the cost of one token, for its source."""
    tp = int(block.size)
    sent = layer_tensor_traffic(module, tp).times(part.layers)
    if not part.forward:
        sent = sent.back
        for how, count in part.recompute:
            sent += recompute_traffic(module, tp, how).times(count)
    if part.embedding_head:
        sent += embedding_head_traffic(module, tp, dtype, part.forward)
    each = DTYPE_BYTES[dtype] / part.split.degree  # a tp group has its share of an item's tokens
    moved = gather_scatter_cost(network, block, (sent.gathered * each, sent.scattered * each), (0, 0))
    fixed = gather_scatter_cost(network, block, (0.0, 0.0), (round(sent.gathers), round(sent.scatters)))
    return CostLine(0.0, moved.value, fixed.value, moved.value, fixed.value), moved


def gather_scatter_cost(
    network: NetworkModel, block: CommGroup, sizes: tuple[float, float], calls: tuple[int, int]
) -> Cost:
    """The cost of `calls` all-gathers and reduce-scatters, with `sizes` bytes in all."""
    kinds = zip(("all_gather", "reduce_scatter"), sizes, calls, strict=True)
    return total_cost(*(network.collective_cost(kind, size_bytes, block, often) for kind, size_bytes, often in kinds))


def layer_tensor_traffic(module: Module, tp: int) -> TensorTraffic:
    """Communication of one layer's forward, in the mean over the module's."""
    hidden, widths, mlps = module.hidden, gathered_widths(module), sharded_mlps(module, tp)
    attention = TensorTraffic(sum(widths), len(widths), hidden, 1).times(blocks_per_layer(module, "attention"))
    return attention + TensorTraffic(hidden, 1, hidden, 1).times(mlps + other_blocks(module))


def other_blocks(module: Module) -> float:
    """Blocks per layer, in the mean, that gather one hidden vector in front and reduce-scatter one behind."""
    single: tuple[Block, ...] = ("state_space", "linear_attention", "cross_attention", "matrices")
    twice = 2.0 * blocks_per_layer(module, "attending_matrices")  # around attention, and around an MLP
    return sum(blocks_per_layer(module, block) for block in single) + twice


def blocks_per_layer(module: Module, block: Block) -> float:
    """Blocks of this kind per layer, in the mean."""
    return mean_over_layers(module, None, lambda kind: kind_blocks(kind).count(block))


def gathered_widths(module: Module) -> tuple[int, ...]:
    """Widths that attention gathers, call by call: hidden vectors, or the compressed ones that heads are projected
    from.
    """
    latent = module.latent_attention
    if latent is None:
        return (module.hidden,)
    keys = latent.kv_rank + latent.rope_dim
    return (keys + latent.q_rank,) if latent.q_rank else (keys, module.hidden)


def sharded_mlps(module: Module, tp: int) -> float:
    """MLPs per layer, in the mean, that tp shards: the dense one, or the shared experts."""

    def sharded(kind: LayerKind) -> int:
        widths = (mlp_width(module, block) for block in kind_blocks(kind))
        return sum(width > 0 and width % tp == 0 for width in widths)

    return mean_over_layers(module, None, sharded)


def mlp_width(module: Module, block: Block) -> int:
    """Width of a block's dense MLP or of its shared experts; 0 where it has neither."""
    widths: dict[Block, int] = {
        "mlp": module.ffn,
        "experts": module.routed_experts.shared_ffn if module.routed_experts else 0,
    }
    return widths.get(block, 0)


def recompute_traffic(module: Module, tp: int, how: Recompute) -> TensorTraffic:
    """Communication that one layer repeats in backward for recomputation. The sum behind the last recomputed product is
    not.
    """
    hidden, mlps, attention = module.hidden, sharded_mlps(module, tp), blocks_per_layer(module, "attention")
    latent, widths = module.latent_attention, gathered_widths(module)
    if how != "full":  # a hidden vector is gathered again; compressed ones are kept
        parts, gathered = parts_of(how), TensorTraffic(gathered=hidden, gathers=1)
        attends = 0.0 if "norm" not in parts or (latent and latent.q_rank) else attention
        return gathered.times(attends + (mlps if parts & SELECTIVE_PARTS else 0.0))
    mlp = TensorTraffic(gathered=hidden, gathers=1).times(mlps)
    rest = TensorTraffic(hidden, 1, hidden, 1).times(other_blocks(module))
    return mlp + rest + TensorTraffic(sum(widths), len(widths), hidden, 1).times(attention)


def embedding_head_traffic(module: Module, tp: int, dtype: Dtype, forward: bool) -> TensorTraffic:
    """Communication outside the layers: an all-gather of the input in front of a matrix with sharded outputs, a
    reduce-scatter of the output behind one with sharded inputs, as behind the lookup in a sharded embedding.

    Losses exchange the largest logit of a token and two sums over its vocabulary, and in backward the gradient of the
    loss; an all-reduce is priced as a reduce-scatter and an all-gather. Chunked logits are priced as one chunk.
    """
    matrices, losses = TensorTraffic(), TensorTraffic()
    number = max(FLOAT32_BYTES, DTYPE_BYTES[dtype]) / DTYPE_BYTES[dtype]
    for end in module.embedding_head:
        if not end.shards_over(tp):
            continue
        if not end.products_per_token:
            if end.before_layers:
                matrices += TensorTraffic(scattered=end.inputs, scatters=1)
        elif end.sharded_dim == "inputs":
            matrices += TensorTraffic(scattered=end.outputs * end.products_per_token, scatters=1)
        else:
            matrices += TensorTraffic(gathered=end.inputs * end.products_per_token, gathers=1)
        if end.outputs == module.output_vocabulary and end.products_per_token:
            loss = TensorTraffic(3 * number, 2, 3 * number, 2) if forward else TensorTraffic(gathered=number, gathers=1)
            losses = loss.times(module.predicted_tokens)
    return (matrices if forward else matrices.back) + losses


def replicated_gradients_cost(
    layers: Layers, module: Module, layout: Layout, block: CommGroup, network: NetworkModel
) -> Cost:
    """The cost, once a step, of all-reducing gradients of replicated parameters, which each tp rank has from its own
    tokens.
    """
    own = unsharded_parameters(module, layers, layout.tp) / (layout.state_shards if layout.zero else 1)
    size = own * max(FLOAT32_BYTES, DTYPE_BYTES[layout.dtype])
    return gather_scatter_cost(network, block, (size, size), (1, 1))


def unsharded_parameters(module: Module, layers: Layers, tp: int) -> int:
    """Parameters of these layers, and of what is outside of them behind the last, that each tp rank has in full."""
    counts = kind_counts(module, layers)
    count = sum(
        (replicated_parameters(module, kind) + unsharded_matrices(module, kind, tp)) * each
        for kind, each in counts.items()
    )
    return count + unsharded_embedding_head(module, tp) if layers[-1] == module.layers - 1 else count


def unsharded_matrices(module: Module, kind: LayerKind, tp: int) -> int:
    """Parameters of one layer's matrices whose heads or width tp does not divide, with their biases."""
    module = module.of_kind(kind)
    count, keys, names = 0, key_width(module), kind_blocks(kind)
    if kv_heads(module) % tp and module.latent_attention is None:
        biases = {"none": 0, "all_but_key": 1}.get(module.bias, 2)
        count += (2 * module.hidden + biases) * keys * names.count("attention")
        count += (2 * module.cross_attention_width + biases) * keys * names.count("cross_attention")
    if "mlp" in names and module.ffn % tp:
        last_bias = module.hidden if module.bias in ("all", "all_but_key") else 0  # counted among the replicated
        count += mlp_parameters(module) - last_bias
    return count


def unsharded_embedding_head(module: Module, tp: int) -> int:
    """Parameters outside the layers that each tp rank has in full."""
    sharded = sum(end.sharded_parameters for end in module.embedding_head if end.shards_over(tp) and not end.tied)
    return embedding_head_parameters(module) - sharded
