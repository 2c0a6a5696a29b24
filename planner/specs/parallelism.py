"""How one module is spread over ranks: the one noun for it, from what a job wishes to what a plan has decided.

A job fixes some of its fields and a search decides the others; a plan's layout is one that leaves nothing open
(plan/model.py), and the closed form prices many of them as columns (costs/columns.py). Words are the field's own.
"""

from typing import Annotated, Any, Literal

import msgspec

from planner.specs.base import Count, LayerCount, RankCount, Share, Spec

Recompute = Literal["none", "selective", "full"]
Dtype = Literal["bf16", "fp8", "float32", "float64"]  # fp8: bf16 whose matrix products are computed in fp8
Zero = Annotated[int, msgspec.Meta(ge=0, le=3)]  # stage: 1 shards optimizer states, 2 gradients too, 3 weights too
Schedule = Literal["1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2", "forward_only"]
# Of tokens to experts: a copy to each; one to each node that has any (DeepEP, HybridEP); or all tokens to all ranks,
# which take theirs, and a reduce-scatter behind (MegaScale-MoE, arXiv 2505.11432).
Dispatch = Literal["all_to_all", "node_level", "all_gather"]
# As gradients are exchanged. bf16: cast once, exchanged by all-to-all, summed in float32 (arXiv 2505.11432).
Gradients = Literal["float32", "bf16"]
Overlapped = Literal["tp", "ep"]  # exchanges that are made to run beside compute
Sync = Literal["micro_batch", "step"]

ZERO_BUBBLE = ("zb_h1", "zb_h2")  # schedules that make gradients of weights apart from those of inputs
DIMS = ("tp", "cp", "dp", "replica", "pp")  # of the ranks of a module; as they are ordered if nothing is said
RANK_ORDER = "-".join(DIMS)


class Parallelism(Spec):
    """`None`: not decided. What is said of a module multiplies up: tp · cp · dp · replica · pp are its ranks.

    `dp` and `cp` ranks shard states among each other as the ZeRO stage says, and `replica` counts whole copies of these
    shards (HSDP, arXiv 2304.11277 §3.2.2). Sequences are split by heads (arXiv 2309.14509), around a ring (arXiv
    2310.01889), or both. Experts have a mesh of their own over a stage's ranks (MoE parallel folding,
    arXiv 2504.14960): ep · etp of them hold a layer's experts, and the rest are copies.
    """

    tp: RankCount | None = None  # ranks that share out matrices
    cp: RankCount | None = None  # ranks that share out each sequence
    ulysses: RankCount | None = None  # of these, how many share out heads; blocks of them are a ring
    pp: RankCount | None = None
    vpp: LayerCount | None = None  # chunks of layers on a pipeline rank
    ep: RankCount | None = None  # ranks that share out the experts of a layer
    etp: RankCount | None = None  # ranks that share out each expert's width
    dp: RankCount | None = None
    replica: RankCount | None = None
    rank_order: str | None = None  # dims whose neighbours are nearest come first, as in Megatron's --order
    sequence_parallel: bool | None = None  # tp's ranks share out norms and residuals by tokens (arXiv 2205.05198)
    zero: Zero | None = None
    recompute: Recompute | dict[str | int, Recompute] | None = None  # of all layers, or by ranges; others then: none
    offload: Share | None = None  # of each item's activations, to host memory
    schedule: Schedule | None = None  # of the passes on pipeline ranks
    dispatch: Dispatch | None = None
    dtype: Dtype | None = None
    gradients: Gradients | None = None
    micro_batch: Count | None = None  # sequences that a replica works on at once
    overlap: tuple[Overlapped, ...] | None = None

    def __post_init__(self) -> None:
        if self.schedule not in (None, "interleaved") and (self.vpp or 1) > 1:
            raise ValueError(
                f"{self.schedule} has one chunk a rank, and vpp is {self.vpp} | say interleaved, or vpp: 1"
            )
        if self.schedule in ZERO_BUBBLE and (self.recompute or "none") != "none":
            raise ValueError(
                f"{self.schedule} keeps activations until weights' gradients are made | say recompute: none, or 1f1b"
            )
        if self.cp and self.ulysses and self.cp % self.ulysses:
            raise ValueError(f"ulysses {self.ulysses} does not divide cp {self.cp} | one that does, or 1 for a ring")
        if self.rank_order is not None:
            check_order(self.rank_order)


def check_order(text: str) -> None:
    """Raises ValueError where an order of dims names none, or one twice."""
    named = text.split("-")
    for dim in named:
        if dim not in DIMS:
            raise ValueError(f"no dim of a layout is called `{dim}` | order {RANK_ORDER}, or some of them otherwise")
        if named.count(dim) > 1:
            raise ValueError(f"`{dim}` is in the order twice | name it once")


def said(parallelism: Parallelism) -> dict[str, Any]:
    """The fields that are decided, and how."""
    each = ((name, getattr(parallelism, name)) for name in Parallelism.__struct_fields__)
    return {name: value for name, value in each if value is not None}
