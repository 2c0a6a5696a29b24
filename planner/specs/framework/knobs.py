"""What a training framework can be told: the values of each field of a layout, and the combinations that it refuses.

The rules that read them stand in plan/launchable/launch_rules.py. What no framework could run is no knob but a law of
plans (plan/legal/): degrees multiply up to the ranks, tp divides the heads, ep the experts.
"""

from typing import Literal, get_args

from planner.specs.base import Index, Spec
from planner.specs.parallelism import (
    RECOMPUTED_PARTS,
    Dispatch,
    Dtype,
    GradientDtype,
    OverlappedKind,
    RecomputedPart,
    Schedule,
    ZeroStage,
    check_rank_order,
)

ContextSplit = Literal["ring", "ulysses", "both"]
RecomputeKind = Literal["none", "selective", "full", "ranges"]  # ranges: layers of one pipeline recompute differently
ExpertWidth = Literal["one", "tp", "other"]  # etp, of ranks that shard each expert's width

CONTEXT_SPLITS: tuple[ContextSplit, ...] = get_args(ContextSplit)
RECOMPUTE_KINDS: tuple[RecomputeKind, ...] = get_args(RecomputeKind)
ZERO_STAGES: tuple[ZeroStage, ...] = (0, 1, 2, 3)


class Knobs(Spec):
    """A field that is left out refuses nothing, so that `knobs: {}` is everything that planner can price.

    `sources` says where each of the others is from. Degrees are ranks, M the micro-batches of a replica in a step.
    """

    tp: bool = True  # matrices sharded over tp
    sequence_parallel: tuple[bool, ...] = (False, True)  # whether norms and residuals are sharded too, where tp > 1
    # any; replicated: tp divides the key/value heads, or they divide tp; sharded: tp divides them.
    kv_heads: Literal["any", "replicated", "sharded"] = "any"
    cp: tuple[ContextSplit, ...] = CONTEXT_SPLITS  # how sequences are sharded; (): not at all
    ulysses_heads: Literal["query", "key_value"] = "query"  # the heads that tp · ulysses divides
    # What divides the length of equal sequences, where cp > 1: 2·cp; or that and tp (with tp alone too).
    sequence_multiple: Literal["any", "2cp", "tp_2cp"] = "any"
    pp: bool = True
    uneven_stages: bool = True  # layers that pp · vpp does not divide, or that stages divide unevenly
    tied_stages: bool = True  # a pipeline of a model whose head shares the embedding's weights
    schedules: tuple[Schedule, ...] = get_args(Schedule)  # beside 1f1b; interleaved: vpp > 1
    least_micro_batches: Literal["one", "stages"] = "one"  # stages: M ≥ pp without interleaving
    # With vpp > 1. stages: M ≥ pp; multiple: pp divides M; rounds: max(1, ⌊M / pp⌋) divides M.
    interleaved_micro_batches: Literal["any", "stages", "multiple", "rounds"] = "any"
    even_batch: bool = False  # micro-batch · dp · replica divides the sequences of a step
    ep: bool = True
    etp: tuple[ExpertWidth, ...] = get_args(ExpertWidth)
    # Ranks that ep · etp divides. stage: all of a stage's; replica: those of one ZeRO replica (tp · cp · dp); dp: the
    # experts have attention's tp, and ep divides dp.
    expert_mesh: Literal["stage", "replica", "dp"] = "stage"
    dispatch: tuple[Dispatch, ...] = get_args(Dispatch)
    node_level_etp: Literal["any", "one"] = "any"  # etp where tokens go to each node once
    zero: tuple[ZeroStage, ...] = ZERO_STAGES  # where there is anything to shard
    zero_in_pipeline: tuple[ZeroStage, ...] = ZERO_STAGES  # where pp > 1
    zero_with_experts: tuple[ZeroStage, ...] = ZERO_STAGES  # where ep > 1
    unsharded_replicas: Literal["any", "alone"] = "any"  # alone: ZeRO 0 only where data parallelism is all there is
    replica: bool = True  # several replicas of the ZeRO shards (HSDP)
    replica_shards: Literal["any", "sharded"] = "any"  # sharded: replica > 1 beside tp or cp needs dp > 1
    recompute: tuple[RecomputeKind, ...] = RECOMPUTE_KINDS
    recompute_block: bool = True  # the first so many layers of each chunk in full, where `full` is possible
    recomputed_parts: tuple[RecomputedPart, ...] = RECOMPUTED_PARTS  # that can be named, where selective is possible
    offload: Literal["none", "alone", "any"] = "any"  # of activations; alone: without pipeline and recomputation
    # whole: of modules or layers as a whole, some of which a share stands for; none: of kinds of modules alone.
    offload_shares: Literal["any", "whole", "none"] = "any"
    offloaded_parts: tuple[RecomputedPart, ...] = RECOMPUTED_PARTS  # kinds of activations that can be named
    optimizer_offload: tuple[ZeroStage, ...] = ZERO_STAGES  # stages beside which moments may be in host memory
    dtypes: tuple[Dtype, ...] = get_args(Dtype)
    gradients: tuple[GradientDtype, ...] = get_args(GradientDtype)
    overlap: tuple[OverlappedKind, ...] = get_args(OverlappedKind)  # communication beside compute
    tp_overlap: Literal["any", "sequence_parallel"] = "any"  # what overlap of tp needs
    # interleaved: a pipeline with overlap of ep has vpp > 1, and no layer is recomputed in full.
    ep_overlap: Literal["any", "interleaved"] = "any"
    # What steps decide beside layouts (plan/launchable/). Groups of ranks that share sequences. any: others in
    # each micro-batch; layout: the replicas of the layout, always.
    groups: Literal["any", "layout"] = "any"
    packing: Literal["any", "equal"] = "any"  # sequences of a micro-batch; equal: `micro_batch` of them, or padding
    # Of passes. any: slot by slot, and encoders ahead of their readers; named: those of the schedules.
    orders: Literal["any", "named"] = "any"
    ahead: Index = 0  # named: micro-batches that encoders may be ahead, on ranks that their readers have not
    kept_features: bool = True  # outputs of frozen encoders that later epochs read from host memory or a disk
    rank_orders: tuple[str, ...] = ()  # orders of the dims, fastest-varying first; (): any
    sources: dict[str, str] = {}  # knob → version, and the file or page that says so

    def __post_init__(self) -> None:
        for order in self.rank_orders:
            check_rank_order(order)
        unknown = [name for name in self.sources if name not in self.__struct_fields__]
        if unknown:
            raise ValueError(f"`sources` is of a knob `{unknown[0]}`, and there is none | name a knob")
