"""The parallelism of one module: degrees and options, from what a job fixes to what a plan has decided.

A job fixes some of its fields and a search decides the others; a plan's layout has all fields decided
(plan/plan_file.py), and the closed form prices many of them as columns (costs/layout_columns.py).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations, pairwise
from typing import Annotated, Any, Literal, get_args

import msgspec

from planner.specs.base import Count, LayerCount, Layers, RankChoice, RankCount, Share, Spec

# Parts of a layer that backward recomputes from what is kept in front of them: the core of attention from queries, keys
# and values; norms from their input; the dense MLP and shared experts; the routed experts.
RecomputedPart = Literal["attention", "norm", "mlp", "moe"]
RecomputeName = Literal["none", "selective", "full"]
# What a layer recomputes: a name, or the parts, in the order above. `none` and `selective` are the names of two sets.
Recompute = RecomputeName | Annotated[tuple[RecomputedPart, ...], msgspec.Meta(min_length=1)]
RECOMPUTED_PARTS: tuple[RecomputedPart, ...] = get_args(RecomputedPart)
# What of a layer's activations is in host memory: a share of all of them, or whole kinds. By kinds those that the name
# has: attention's queries, keys, values and output; inputs of blocks and of their first products; of an MLP or of
# experts what is between their products (costs/memory/activations.py).
Offload = Share | Annotated[tuple[RecomputedPart, ...], msgspec.Meta(min_length=1)]
SELECTIVE_PARTS: frozenset[RecomputedPart] = frozenset({"norm", "mlp"})  # what is cheap to recompute and large to keep
Dtype = Literal["bf16", "fp8", "float32", "float64"]  # fp8: bf16 whose matrix products are computed in fp8
ZeroStage = Annotated[int, msgspec.Meta(ge=0, le=3)]  # stage: 1 shards optimizer states, 2 gradients too, 3 weights too
Schedule = Literal["1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2", "forward_only"]
# How tokens get to experts: a copy to each; one to each node that has any (DeepEP, HybridEP); or all tokens to all
# ranks, which select theirs, and a reduce-scatter afterwards (MegaScale-MoE, arXiv 2505.11432).
Dispatch = Literal["all_to_all", "node_level", "all_gather"]
# The dtype in which gradients are sent. bf16: cast once, sent by all-to-all, summed in float32 (arXiv 2505.11432).
GradientDtype = Literal["float32", "bf16"]
OverlappedKind = Literal["tp", "ep"]  # communication that is overlapped with compute
Sync = Literal["micro_batch", "step"]
# Where a frozen encoder's outputs come from: computed in every epoch; or in the first one, and then read from the
# host's memory or from a disk (plan/feature_storage.py).
FeatureSource = Literal["computed", "host", "disk"]

ZERO_BUBBLE = ("zb_h1", "zb_h2")  # schedules that compute gradients of weights apart from those of inputs
# Dims of a module's rank mesh, in their default order, fastest-varying first
MESH_DIMS = ("tp", "cp", "dp", "replica", "pp")
DEFAULT_RANK_ORDER = "-".join(MESH_DIMS)


class Parallelism(Spec):
    """Fields that are None are not decided. Degrees multiply up: tp · cp · dp · replica · pp is the number of ranks.

    ZeRO shards states over `dp` and `cp` ranks, and `replica` counts complete copies of these shards (HSDP,
    arXiv 2304.11277 §3.2.2). Sequences are split by heads (arXiv 2309.14509), around a ring (arXiv
    2310.01889), or both. Experts have a mesh of their own over a stage's ranks (MoE parallel folding,
    arXiv 2504.14960): a layer's experts are sharded over ep · etp of them, and the rest are replicas.
    """

    tp: RankCount | None = None  # ranks that matrices are sharded over
    cp: RankCount | None = None  # ranks that each sequence is sharded over
    ulysses: RankCount | None = None  # of these, ranks of an all-to-all over heads; the rest of cp is a ring
    pp: RankCount | None = None
    vpp: LayerCount | None = None  # chunks of layers (virtual stages) on a pipeline rank
    ep: RankCount | None = None  # ranks that the experts of a layer are sharded over
    etp: RankCount | None = None  # ranks that each expert's width is sharded over
    dp: RankCount | None = None
    replica: RankCount | None = None
    rank_order: str | None = None  # fastest-varying dim first, as in Megatron's --order
    sequence_parallel: bool | None = None  # norms and residuals are sharded over tp by tokens (arXiv 2205.05198)
    zero: ZeroStage | None = None
    # of all layers, or by ranges of layers, where others have none
    recompute: Recompute | dict[str | int, Recompute] | None = None
    offload: Offload | None = None  # of each item's activations in host memory: a share, or kinds such as [attention]
    optimizer_offload: Share | None = None  # share of Adam's moments in host memory, where processors update them
    schedule: Schedule | None = None  # of the passes on pipeline ranks
    dispatch: Dispatch | None = None
    dtype: Dtype | None = None
    gradients: GradientDtype | None = None
    micro_batch: Count | None = None  # sequences of a replica in one micro-batch
    overlap: tuple[OverlappedKind, ...] | None = None
    features: FeatureSource | None = None  # of a frozen encoder: where its outputs come from after the first epoch
    ranks: RankChoice | None = None  # as 0-3; or first_stage, of the module that reads this one; left out: all ranks
    stages: tuple[Layers, ...] | None = None  # layers of each stage, or of each chunk; left out: as even as they can be

    def __post_init__(self) -> None:
        if isinstance(self.recompute, tuple | dict):
            msgspec.structs.force_setattr(self, "recompute", canonical_recompute(self.recompute))
        if isinstance(self.offload, tuple):
            msgspec.structs.force_setattr(self, "offload", parts_in_order(self.offload, "offload"))
        if self.schedule not in (None, "interleaved") and (self.vpp or 1) > 1:
            raise ValueError(
                f"{self.schedule} has one chunk a rank, and vpp is {self.vpp} | set schedule: interleaved, or vpp: 1"
            )
        if self.schedule in ZERO_BUBBLE and (self.recompute or "none") != "none":
            raise ValueError(
                f"{self.schedule} keeps activations for weights' gradients | set recompute: none, or schedule: 1f1b"
            )
        if self.cp and self.ulysses and self.cp % self.ulysses:
            raise ValueError(f"ulysses {self.ulysses} does not divide cp {self.cp} | a divisor, or 1 for a ring")
        if self.rank_order is not None:
            check_rank_order(self.rank_order)

    @property
    def offloaded_parts(self) -> tuple[RecomputedPart, ...]:
        """The kinds of activations that are offloaded; () where it is a share of all of them."""
        return self.offload if isinstance(self.offload, tuple) else ()

    @property
    def offload_share(self) -> float:
        """The share of activations that is offloaded, of its kinds where it names them."""
        return 1.0 if isinstance(self.offload, tuple) else self.offload or 0.0


def part_code(parts: Iterable[RecomputedPart]) -> int:
    """Return a set of parts as a number, a bit for each in their order."""
    return sum(1 << RECOMPUTED_PARTS.index(part) for part in parts)


def parts_of_code(code: int) -> tuple[RecomputedPart, ...]:
    """Return the parts that a number of `part_code` stands for."""
    return tuple(part for number, part in enumerate(RECOMPUTED_PARTS) if code >> number & 1)


def parts_in_order(parts: tuple[RecomputedPart, ...], field: str) -> tuple[RecomputedPart, ...]:
    """Return parts in the order of a layer. Raises ValueError where one is named twice."""
    for part in parts:
        if parts.count(part) > 1:
            raise ValueError(f"{field} names `{part}` twice | name each part once")
    return tuple(part for part in RECOMPUTED_PARTS if part in parts)


def parts_of(how: Recompute) -> frozenset[RecomputedPart]:
    """Return the parts that a layer recomputes; none where all of it is recomputed in full."""
    return frozenset(how) if isinstance(how, tuple) else SELECTIVE_PARTS if how == "selective" else frozenset()


def recompute_of(parts: Iterable[RecomputedPart]) -> Recompute:
    """Return how a file says a set of parts: its name, or its parts in the order of a layer."""
    chosen = frozenset(parts)
    if chosen in (frozenset(), SELECTIVE_PARTS):
        return "selective" if chosen else "none"
    return tuple(part for part in RECOMPUTED_PARTS if part in chosen)


def canonical_recompute(how: Recompute | dict[str | int, Recompute]) -> Recompute | dict[str | int, Recompute]:
    """Return the one way to say it, of all layers or of ranges. Raises ValueError where a part is named twice."""
    if isinstance(how, dict):
        return {layers: canonical_recompute(own) for layers, own in how.items()}  # type: ignore[misc]
    return recompute_of(parts_in_order(how, "recompute")) if isinstance(how, tuple) else how


def sets_of_parts(parts: tuple[RecomputedPart, ...]) -> tuple[tuple[RecomputedPart, ...], ...]:
    """Return every set of some of these parts, smaller sets first."""
    return tuple(some for size in range(1, len(parts) + 1) for some in combinations(parts, size))


# Every set of parts that has no name, smaller sets first.
PART_SETS = tuple(parts for parts in sets_of_parts(RECOMPUTED_PARTS) if frozenset(parts) != SELECTIVE_PARTS)


def check_rank_order(text: str) -> None:
    """Raises ValueError where an order of dims has an unknown dim, or one twice."""
    named = text.split("-")
    for dim in named:
        if dim not in MESH_DIMS:
            raise ValueError(
                f"no dim of a layout is called `{dim}` | order {DEFAULT_RANK_ORDER}, or some of them otherwise"
            )
        if named.count(dim) > 1:
            raise ValueError(f"`{dim}` is in the order twice | name it once")


def decided_fields(parallelism: Parallelism) -> dict[str, Any]:
    """Return the fields that are decided, with their values."""
    fields = ((name, getattr(parallelism, name)) for name in Parallelism.__struct_fields__)
    return {name: value for name, value in fields if value is not None}


def broken_partition(stages: Sequence[Layers], layers: int) -> tuple[str, str] | None:
    """The message about pipeline stages that do not hold layers 0 to `layers` - 1 once each, in order, and its fix;
    None where they do. Single numbers that add up to the layers were meant as counts: the fix says the stages of these.
    """
    named = [layer for stage in stages for layer in stage]
    if named == [*range(layers)]:
        return None
    if all(len(stage) == 1 for stage in stages) and sum(named) == layers and all(named):
        meant = [Layers(range(first, last)) for first, last in pairwise(accumulate(named, initial=0))]
        message = f"the stages are single layers {', '.join(map(str, named))}, and there are {layers} layers"
        return message, f"as counts of layers: stages: [{', '.join(map(str, meant))}]"
    fix = f"cover each of layers 0-{layers - 1} once, in order"
    unknown = [layer for layer in named if layer >= layers]
    repeated = [layer for layer, count in Counter(named).items() if count > 1]
    missing = sorted({*range(layers)} - {*named})
    if unknown:
        return f"layer {min(unknown)} of the stages does not exist, there are {layers}", fix
    if repeated:
        return f"layer {min(repeated)} is in {named.count(min(repeated))} stages", fix
    if missing:
        return f"{'layer' if len(missing) == 1 else 'layers'} {Layers(missing)} in no stage", fix
    return "the layers of the stages do not rise from one stage to the next", fix
