"""What the ranks of a tensor-parallel block send each other: around matrices in each pass, and once at a step's end.

Ranks part the tokens between matrices (sequence parallelism, arXiv 2205.05198): in front of a block of matrices they
gather them, behind it they add up and part again, and backward does the other for each. Recomputation gathers again
what it makes again. What their number does not divide each rank has whole, and sends nothing for it.
"""

from dataclasses import dataclass

from planner.costs.compute.lines import Line
from planner.costs.cost import Cost, summed
from planner.costs.memory.states import replicated
from planner.costs.network.network import Group, Network
from planner.costs.part import Part
from planner.plan.model import Layout
from planner.specs.base import Layers
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import Block, LayerKind, blocks
from planner.specs.layers.heads import kv_heads
from planner.specs.parallelism import Dtype, Recompute
from planner.specs.parameters import end_parameters, mlp_parameters
from planner.specs.profile import ModuleCosts
from planner.specs.shapes import BYTES, key_width, mean

WIDE = 4  # bytes of a number, at least, in losses and in gradients of weights


@dataclass(frozen=True, slots=True)
class Sent:
    """Elements per token of a block that its ranks gather, and that they add up and part; and in how many calls."""

    gathered: float = 0.0
    gathers: float = 0.0
    scattered: float = 0.0
    scatters: float = 0.0

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(
            self.gathered + other.gathered,
            self.gathers + other.gathers,
            self.scattered + other.scattered,
            self.scatters + other.scatters,
        )

    def times(self, count: float) -> "Sent":
        return Sent(self.gathered * count, self.gathers * count, self.scattered * count, self.scatters * count)

    @property
    def back(self) -> "Sent":
        """Backward of a gather adds up and parts, and the other way round."""
        return Sent(self.scattered, self.scatters, self.gathered, self.gathers)


def of_one_rank(costs: ModuleCosts) -> bool:
    """Whether these were measured on a rank alone, so that what tp's ranks send each other comes in addition.

    Fits that somebody published, or wrote down, are of whatever they say.
    """
    return costs.source in ("measured", "fitted") and costs.tp == 1


def tensor_line(part: Part, module: Module, dtype: Dtype, block: Group, network: Network) -> tuple[Line, Cost]:
    """What one pass sends in a block; and one token's cost, for its source."""
    tp = int(block.size)
    sent = layer_sent(module, tp).times(part.layers)
    if not part.forward:
        sent = sent.back
        for how, count in part.again:
            sent += again_sent(module, tp, how).times(count)
    if part.ends:
        sent += ends_sent(module, tp, dtype, part.forward)
    each = BYTES[dtype] / part.split.degree  # a block has its share of an item's tokens
    moved = both(network, block, (sent.gathered * each, sent.scattered * each), (0, 0))
    fixed = both(network, block, (0.0, 0.0), (round(sent.gathers), round(sent.scatters)))
    return Line(0.0, moved.value, fixed.value, moved.value, fixed.value), moved


def both(network: Network, block: Group, sizes: tuple[float, float], calls: tuple[int, int]) -> Cost:
    """So many bytes in so many all-gathers, and in reduce-scatters."""
    kinds = zip(("all_gather", "reduce_scatter"), sizes, calls, strict=True)
    return summed(*(network.cost(kind, size_bytes, block, often) for kind, size_bytes, often in kinds))


def layer_sent(module: Module, tp: int) -> Sent:
    """Of one layer, forward, in the mean over the module's."""
    hidden, widths, parted = module.hidden, gathered_widths(module), parted_mlps(module, tp)
    attention = Sent(sum(widths), len(widths), hidden, 1).times(of_block(module, "attention"))
    return attention + Sent(hidden, 1, hidden, 1).times(parted + others(module))


def others(module: Module) -> float:
    """A layer's blocks in front of which a hidden vector is gathered, and behind which one is summed, in the mean."""
    return of_block(module, "state_space") + of_block(module, "cross_attention")


def of_block(module: Module, block: Block) -> float:
    """How many of a layer's blocks are such, in the mean."""
    return mean(module, None, lambda kind: blocks(kind).count(block))


def gathered_widths(module: Module) -> tuple[int, ...]:
    """Of what attention gathers, call by call: hidden vectors, or the narrow ones that heads are made of."""
    latent = module.compressed
    if latent is None:
        return (module.hidden,)
    keys = latent.kv_rank + latent.rope_dim
    return (keys + latent.q_rank,) if latent.q_rank else (keys, module.hidden)


def parted_mlps(module: Module, tp: int) -> float:
    """How many of a layer's MLPs tp's ranks part, in the mean: the dense one, or the experts that see every token."""

    def parted(kind: LayerKind) -> int:
        widths = (mlp_width(module, block) for block in blocks(kind))
        return sum(width > 0 and width % tp == 0 for width in widths)

    return mean(module, None, parted)


def mlp_width(module: Module, block: Block) -> int:
    """Of what every token has in a block; 0: nothing, or it is no MLP."""
    widths: dict[Block, int] = {"mlp": module.ffn, "experts": module.routed.shared_ffn if module.routed else 0}
    return widths.get(block, 0)


def again_sent(module: Module, tp: int, how: Recompute) -> Sent:
    """What one layer sends again in backward. Nothing is made again behind the last product of what is: its sum."""
    hidden, parted, attention = module.hidden, parted_mlps(module, tp), of_block(module, "attention")
    if how == "none":
        return Sent()
    mlp = Sent(gathered=hidden, gathers=1).times(parted)
    latent, widths = module.compressed, gathered_widths(module)
    if how == "selective":  # a hidden vector is gathered again; narrow ones are kept
        return mlp if latent and latent.q_rank else mlp + Sent(gathered=hidden, gathers=1).times(attention)
    rest = Sent(hidden, 1, hidden, 1).times(others(module))
    return mlp + rest + Sent(sum(widths), len(widths), hidden, 1).times(attention)


def ends_sent(module: Module, tp: int, dtype: Dtype, forward: bool) -> Sent:
    """Of what is outside the layers and parted: in front of a matrix that outputs part its input is gathered, behind
    one that inputs part its output is summed, as rows are that ranks look up in their part of a table.

    Of losses, the largest logit of a token, two sums over its words, and in backward the gradient of its loss travel;
    an all-reduce is priced as a reduce-scatter and an all-gather. Chunks of very many logits are taken as one.
    """
    matrices, losses = Sent(), Sent()
    number = max(WIDE, BYTES[dtype]) / BYTES[dtype]
    for end in module.ends:
        if not end.divides(tp):
            continue
        if not end.uses:
            if end.first:
                matrices += Sent(scattered=end.inputs, scatters=1)
        elif end.parted == "inputs":
            matrices += Sent(scattered=end.outputs * end.uses, scatters=1)
        else:
            matrices += Sent(gathered=end.inputs * end.uses, gathers=1)
        if end.outputs == module.vocabulary and end.uses:
            losses = Sent(3 * number, 2, 3 * number, 2) if forward else Sent(gathered=number, gathers=1)
    return (matrices if forward else matrices.back) + losses


def settled_cost(layers: Layers, module: Module, layout: Layout, block: Group, network: Network) -> Cost:
    """Once a step: gradients of what each of tp's ranks has whole, each of its own rows, summed in one all-reduce."""
    kept = whole_parameters(module, layers, layout.tp) / (layout.sharding if layout.zero else 1)
    size = kept * max(WIDE, BYTES[layout.dtype])
    return both(network, block, (size, size), (1, 1))


def whole_parameters(module: Module, layers: Layers, tp: int) -> int:
    """Of these layers, with the ends behind the last: those that each of tp's ranks has whole."""
    counts = kind_counts(module, layers)
    count = sum((replicated(module, kind) + unparted(module, kind, tp)) * each for kind, each in counts.items())
    return count + whole_ends(module, tp) if layers[-1] == module.layers - 1 else count


def unparted(module: Module, kind: LayerKind, tp: int) -> int:
    """Of one layer, matrices whose heads or width tp does not divide, with their biases."""
    count, keys, made = 0, key_width(module), blocks(kind)
    if "attention" in made and kv_heads(module) % tp and module.compressed is None:
        biases = {"none": 0, "all_but_key": 1}.get(module.bias, 2)
        count += (2 * module.hidden + biases) * keys
        count += (2 * module.crossing + biases) * keys * made.count("cross_attention")
    if "mlp" in made and module.ffn % tp:
        last_bias = module.hidden if module.bias in ("all", "all_but_key") else 0  # it is among the replicated
        count += mlp_parameters(module) - last_bias
    return count


def whole_ends(module: Module, tp: int) -> int:
    """Outside the layers."""
    parted = sum(end.shared_out for end in module.ends if end.divides(tp) and not end.tied)
    return end_parameters(module) - parted
